"""Running users' programs: the entry point of a topology, its dependencies, reloads, and Spark's
reports. May import `cluster`, `options` and `output`."""
