"""What a worker watches about itself: calls that do not return. `stalls` decides, `watchdog`
acts."""
