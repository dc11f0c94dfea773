"""The sub-commands of `storm`, one per file; each defines `command`."""
