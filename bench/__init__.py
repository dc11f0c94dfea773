"""Benchmarks: `python -m bench` prints the headline figures as JSON (see docs/performance.md)."""
