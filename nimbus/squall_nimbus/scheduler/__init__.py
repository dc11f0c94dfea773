"""Scheduling: which executor runs in which slot. Pure: takes a snapshot, returns placements."""
