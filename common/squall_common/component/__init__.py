"""The classes with which users write components: spouts, bolts, tuples, groupings, state, metrics.

The objects here hold no connection and start nothing; the engine binds them to a task. `squall`
re-exports the public ones. May import `topology`, `daemon`, `errors` and `names`.
"""
