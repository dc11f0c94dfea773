"""Metrics for Prometheus: what every daemon counts, the page that it serves, and the file through
which a worker's samples reach the page of its supervisor. And what the figures of a topology say
about it: `findings`, plain functions. May import `daemon` and `history`; the engine imports only
`samples`.
"""
