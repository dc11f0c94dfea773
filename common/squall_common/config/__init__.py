"""Configuration: the keys, their types and bounds, and how the sources of values are merged.

`options` declares keys and has the typed options that programs read, `schema` checks values, `load`
reads and merges files and `-c`, `scopes` says where a key counts, `for_workers` which keys leave
the node's own configuration. No code outside looks an option up by its key. May import `daemon`
(its log) and `errors`.
"""
