"""The logviewer: a daemon on each node that serves the logs of its workers and daemons.

- `places`: which files there are, and how one is opened safely.
- `reading`: parts of a file, also of a compressed one.
- `search`: in a file, and in all files of a topology.
- `routes`: Storm's routes. `daemon`: the process.

It reads files and asks nobody: it needs no Nimbus. Imports nothing of the UI.
"""
