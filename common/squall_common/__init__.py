"""Code that the daemons, the engine and the API share. Nothing here starts a process or a server by
itself.

Rooms, from the bottom up: `security` and `daemon` (a process and its files), `config`, `topology`
(the description of a topology), `component` (what users subclass), `cluster` (the state in
ZooKeeper), `worker_files` (between supervisor and worker), `packaging`, `client` (of Nimbus),
`history` and `telemetry` (metrics, and what they say). Beside them stand only `errors` and `names`.
Imports `squall_thrift` and nothing above.
"""
