"""The cluster state: what the daemons know in common, kept in ZooKeeper.

`store` is the interface of the tree below it, with two implementations that pass one test suite:
`zookeeper` (an ensemble) and `memory` (one process). `state` is typed access to Storm's paths over
either, `leader` the election of a Nimbus and the fence around its writes, `codec` the bytes, and
`access` who may do what with each node.
"""
