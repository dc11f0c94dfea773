"""What can be seen of a running engine: metrics, rows of the history, the event log, errors, calls
under way, and descriptions of tasks. Reads the other rooms and changes nothing in them.
"""
