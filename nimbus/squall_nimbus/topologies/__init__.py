"""The life of a topology: `lifecycle` is the state machine, and `lifecycle_shell` carries out its
decisions; `submit`, `rebalance`, `user_changes` and `cleanup` do what users ask for. May import
`store`, `blobs` and `scheduler`.
"""
