"""`topology.metrics.reporters`: what reporters are configured, the values of a worker's tasks, and
the threads that report them. May import `observe` and `tasks`."""
