"""The life of a topology: `lifecycle` is the state machine, `lifecycle_shell` carries out what it
decides; `submit`, `rebalance`, `user_changes` and `cleanup` are what can be asked. Stands above
`store`, `blobs` and `scheduler`.
"""
