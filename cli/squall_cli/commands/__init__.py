"""The sub-commands of `storm`, one a file; each defines `command`."""
