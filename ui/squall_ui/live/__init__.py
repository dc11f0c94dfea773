"""What the pages show while it changes.

- `rates`: what executors do now, from the counters that they report.
- `graph`: what flows between components, and the slowest path.
- `state`: all of it about one topology, as the pages get it, with what holds it up
  (`squall_common.telemetry.findings`). `series`: the same over time.
- `hub`: reads once for all pages, and tells them what has changed.

All but `hub` are plain functions and values. Imports `nimbus` and `rest`.
"""
