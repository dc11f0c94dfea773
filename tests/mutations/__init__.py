"""Weakened builds: for each check that security rests on, the line that makes it, what a careless
change would leave there, and the one test that must fail then. `weakened.toml` is the list,
`python -m tests.mutations` tries it.
"""
