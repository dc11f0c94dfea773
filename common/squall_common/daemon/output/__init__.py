"""What a daemon and the code in it print: by component, without secrets, as one story."""
