"""What a worker process may do: its user, its limits, its cgroup and its files. May import
`records`."""
