"""What a worker process may do: its user, its limits, its cgroup, its files. May import
`records`.
"""
