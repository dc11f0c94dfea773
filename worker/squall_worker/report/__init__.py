"""What a worker reports: heartbeats, statistics, errors, history rows, dumps and what it
printed."""
