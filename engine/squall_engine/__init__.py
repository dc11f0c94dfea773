"""The engine: runs the executors of one worker, and everything between them, on one thread.

Programs that run tasks use `squall_engine.embed`, and `squall_engine.transport` to connect workers.
"""

from squall_common.daemon import compiled_modules

compiled_modules.prefer()
