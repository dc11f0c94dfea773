"""Configuration: the keys, their types and bounds, and how the sources of values are merged.

`schema` declares keys, `load` reads and merges files and options, `scopes` says where a key counts,
`for_workers` which keys leave the node's own configuration. May import `daemon` (its log) and
`errors`.
"""
