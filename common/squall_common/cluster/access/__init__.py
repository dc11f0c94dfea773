"""Who may do what with each node of ZooKeeper: the lists by path, and the digests by which daemons
and workers prove who they are there (decision 0130). Knows no store, and imports none."""
