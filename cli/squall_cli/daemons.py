"""How daemons are started: `python -m PACKAGE`, with the merged configuration in a file.

The file is named by the environment variable SQUALL_DAEMON_CONF and readable by its owner only,
since a configuration may hold secrets. The command line imports no daemon.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from squall_common.config.load import local_dir
from squall_common.daemon.files import write_atomic
from squall_common.daemon.run import CONF_VARIABLE
from squall_common.errors import ConfigError


def daemon_argv(package: str, arguments: Sequence[str] = ()) -> list[str]:
    """The command line of a daemon. `-P` keeps the current folder off sys.path, where a user's
    file may have the same name as a module that the daemon imports."""
    return [sys.executable, "-P", "-m", package, *arguments]


def write_daemon_conf(folder: Path, conf: Mapping[str, Any]) -> Path:
    """Write the configuration for a daemon, and return its path. Raises
    ConfigError when the folder cannot be made or written."""
    path = folder / "daemon-conf.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(conf, indent=1).encode(), mode=0o600)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}",
            hint="Set storm.local.dir to a folder that you can write.",
        ) from error
    return path


def exec_daemon(
    name: str, package: str, conf: Mapping[str, Any], *, arguments: Sequence[str] = ()
) -> NoReturn:
    """Become the daemon: its process id, signals and exit status are this command's."""
    folder = local_dir(conf) / name
    path = write_daemon_conf(folder, {**conf, "storm.local.dir": str(folder.parent)})
    sys.stdout.flush()
    sys.stderr.flush()
    argv = daemon_argv(package, arguments)
    os.execve(argv[0], argv, {**os.environ, CONF_VARIABLE: str(path)})
