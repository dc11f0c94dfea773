"""A model of epochs: how a topology keeps its state, its positions in its sources and the rows of
its sinks exactly once, whatever fails.

Coordinator, workers and the epochs of tasks are the engine's own (`squall_engine.epochs`). Around
them is a model: links, what tasks do, and what they write to (one znode, a store of objects, a
database, a broker). A seed decides the order of all events and the faults: processes end, or
live on while another one has taken their place; messages are late; a write is applied, lost, or
applied long after its writer gave up waiting. After each completed epoch the state has to be that
of exactly the messages before it; in the end the database has to hold each row once.

`rules.py` names what each part may not do otherwise. Each rule can be broken, and some seed has to
notice: a rule that nothing needs would be a wrong rule, or a blind model.
"""
