"""A whole cluster in one thread, on virtual time, with every fault: one seed, one run.

    python -m tests.simulation --seed N [--trace]

The daemons and workers are the real ones. What is simulated is what they stand on: `loop` (time,
processes, the order in which things happen), `network`, `store` (ZooKeeper), `disk`, `machine` (the
process table). `faults` breaks these, `invariants` watches, `ledger` is the world outside, which
knows what was accepted and what took effect. `run` puts it together.
"""
