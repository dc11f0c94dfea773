"""What users write components with: spouts, bolts, tuples, groupings, state and metrics.

The objects here hold no connection and start nothing; the engine binds them to a task. `squall`
re-exports what is public. May import `topology`, `daemon`, `errors` and `names`.
"""
