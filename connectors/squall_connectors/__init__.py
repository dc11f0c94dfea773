"""Sources and sinks: spouts and bolts for the systems that topologies read from and write to.

Each system has a room of its own, and an extra that installs its client:

    pip install 'squall[kafka]'

    from squall_connectors.kafka import KafkaBolt, KafkaSpout

`base` holds what they share. Importing this package imports no client. docs/connectors.md compares
the connectors, and `squall.testing.connectors` is the contract that all of them pass.
"""
