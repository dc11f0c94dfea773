"""A daemon's event loop: background tasks, and how late the loop is."""
