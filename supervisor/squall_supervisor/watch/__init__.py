"""What the supervisor watches while workers run: memory, profiles, and the size of their logs."""
