"""The parts that every process is made of: its life, its logs, its files, its background work.

Nothing here knows of topologies. May import `security`, `errors` and `names`.
"""
