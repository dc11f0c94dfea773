"""The DRPC server's process: its listeners and services, and the broker between callers and
workers."""
