"""What a worker knows of its cluster: `view` reads assignments, `placement` says which task is
where, `peers` and `membership` keep the links to the others, `presence` notices when this node has
lost its place. May import `transport`.
"""
