"""Choosing the task that a tuple goes to: `routing` makes the groupings of a component's outputs,
`load_balancing` weighs tasks by how full their inboxes are. May import `core`.
"""
