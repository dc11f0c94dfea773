"""The web UI, its REST API, and the logviewer.

- `nimbus`: the one connection to Nimbus that all requests and all open pages share.
- `rest`: Storm's UI REST API (`/api/v1`), its actions, and the OpenAPI document made from them.
- `live`: what the pages show while it changes: rates, the graph, time series, explanations; decided
  by plain functions and sent as server-sent events.
- `pages`: the HTML shell and the files in `static`, which a browser runs as they are.
- `logviewer`: a daemon of its own on each node, which serves the logs of that node's workers.

The UI keeps nothing that it could not read again, and imports no daemon.
"""
