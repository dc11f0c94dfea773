"""What the supervisor keeps on disk and reads back after a restart: assignments, records of
workers, the state file, the last known state of the cluster."""
