"""The engine: runs the executors of one worker, and everything between them, on one thread."""

from squall_engine.engine import Engine, tune_garbage_collector
from squall_engine.loading import ComponentStartError

__all__ = ["ComponentStartError", "Engine", "tune_garbage_collector"]
