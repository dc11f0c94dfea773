"""The life of a topology: `lifecycle` is the state machine, and `lifecycle_shell` carries out its
decisions; `drain` decides when nothing of a topology is in flight; `submit`, `rebalance`,
`user_changes` and `cleanup` do what users ask for. May import `store`, `blobs` and `scheduler`.
"""
