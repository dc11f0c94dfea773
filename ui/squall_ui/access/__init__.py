"""Who asks the UI or a logviewer of a secured cluster, and how a browser logs in.

- `sessions`: what a browser's cookie stands for.
- `authenticator`: a token, a cookie or a certificate -> who asks.
- `login`: the pages and routes of logging in and out.
- `secured`: puts these together for a daemon.

Imports nothing else of this package.
"""
