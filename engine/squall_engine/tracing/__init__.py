"""OpenTelemetry: a trace for each sampled tuple tree, a span for each execution in it.

Nothing here runs unless `topology.tracing.enabled` is on, and then only the tuples of sampled trees
take a slower path. May import what the engine's tasks import, and `opentelemetry` (an extra) inside
functions and classes that exist only while tracing is on.
"""
