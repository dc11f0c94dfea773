"""What the pages show while it changes.

- `rates`: what executors do now, from the counters that they report.
- `graph`: what flows between components, and the slowest path.
- `why`: what holds a topology up, in words.
- `state`: all of it about one topology, as the pages get it. `series`: the same over time.
- `hub`: reads once for all pages, and tells them what has changed.

All but `hub` are plain functions and values. Imports `nimbus` and `rest`.
"""
