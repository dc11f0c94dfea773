"""Observing a running engine: metrics, rows of the history, the event log, errors, calls in
progress, and descriptions of tasks. Reads the other rooms and changes nothing in them.
"""
