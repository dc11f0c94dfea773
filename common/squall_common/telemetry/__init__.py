"""Metrics for Prometheus: what every daemon counts, the page that it serves, and the file through
which a worker's samples reach the page of its supervisor. May import `daemon` and `history`; the
engine imports only `samples`.
"""
