"""What `storm doctor` looks at on this node.

    doors      the doors of a node, from what was found: pure
    node       what there is to find: files, listeners, ZooKeeper

Imports the configuration and clients of `squall_common`, and no daemon.
"""
