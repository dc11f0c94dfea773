"""The images of a worker process: with checkpoints, a rollback starts the process again in place.

It keeps its pid, its files and its place with the supervisor. Threads, sockets and objects of the
image before are gone, whatever they were doing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from squall_engine.epochs.cluster import Image

_VARIABLE = "SQUALL_WORKER_IMAGE"
# Links are numbered: those of a later image are later ones.
LINKS_OF_IMAGE = 1 << 12
_IMAGES_MAX = 1 << 20


def current_image() -> Image:
    """Which image of its process this is."""
    from squall_engine.epochs.cluster import Image

    text = os.environ.get(_VARIABLE)
    return Image() if text is None else Image.decode(text)


def image_number() -> int:
    """Its number; 0: the first."""
    text = os.environ.get(_VARIABLE)
    return 0 if text is None else int(text.partition(",")[0])


def begin_image(image: Image) -> None:
    """Replace this process, or end it if that is not possible. Does not return."""
    logging.shutdown()
    if image.number >= _IMAGES_MAX:
        os._exit(1)  # its supervisor launches another
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk
            stream.flush()
    environment = {**os.environ, _VARIABLE: image.encode()}
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    except OSError as error:  # no memory, or Python is being replaced
        with contextlib.suppress(OSError):
            print(f"{sys.executable} cannot be started: {error}", file=sys.stderr, flush=True)
        os._exit(1)
