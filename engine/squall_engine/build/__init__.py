"""From a plan to running tasks, and back: `build` makes a task for each component of the worker,
`close` ends them. May import every room but `observe`.
"""
