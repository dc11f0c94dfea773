"""Starting and ending tasks: `build` makes the tasks of a worker's components, `close` ends them.
May import every room except `observe`.
"""
