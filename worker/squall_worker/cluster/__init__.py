"""A worker's knowledge of its cluster: `session` is its session with ZooKeeper, `view` reads
assignments, `placement` says which task is where, `first_reading` and `first_epoch` what the worker
starts from, `peers` and `membership` keep the links to the other workers, `pause_detector` notices
when this node has lost its place. May import `transport`."""
