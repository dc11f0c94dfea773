"""Scheduling: which executor runs in which slot. Pure: a snapshot in, placements out."""
