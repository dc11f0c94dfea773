"""Progress bars for people at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


@contextmanager
def transfer_bar(what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr for so many bytes; yields what is to be called with each number of bytes
    that went."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total_bytes)
        yield lambda count: progress.advance(task, count)
