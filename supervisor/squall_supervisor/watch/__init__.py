"""Watches running workers: their memory, profiles, and the size of their logs."""
