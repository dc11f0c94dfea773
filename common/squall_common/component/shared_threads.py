"""The pool of threads that the tasks of a worker share: `context.shared_executor`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class SharedThreads:
    """A thread pool that is made at its first use. From any thread."""

    def __init__(self, size: int = 4) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def executor(self) -> ThreadPoolExecutor:
        """The pool. Raises RuntimeError once it was closed."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the worker has ended: its shared threads are gone")
            if self._executor is None:
                from concurrent.futures import ThreadPoolExecutor

                self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="shared")
            return self._executor

    def close(self) -> None:
        """Cancel the work that waits, and let the threads end after what they are doing. Does not
        wait for them."""
        with self._lock:
            self._closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
