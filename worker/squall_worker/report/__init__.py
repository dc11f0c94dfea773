"""What a worker reports: heartbeats, statistics, errors, history rows, dumps and its printed
output."""
