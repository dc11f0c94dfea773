"""A worker watches itself for calls that do not return. `stalls` decides, `watchdog` acts."""
