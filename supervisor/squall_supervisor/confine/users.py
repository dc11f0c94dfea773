"""Which user of the machine a worker runs as. The choice is pure; `resolve` asks the machine.

With `supervisor.run.worker.as.user` a worker runs as the user that submitted its topology, as
Nimbus authenticated it. Naming a user in a topology chooses nothing (CVE-2017-9799, CVE-2018-1331),
with one exception: if the submitter was not authenticated, `topology.run.as.user` may name one of
the users that the operator lists in `supervisor.run.worker.as.user.choices`; other topologies run
as `supervisor.run.worker.as.user.default`. Without any of these a worker does not start.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from squall_common.config.options.typed import SupervisorOptions, TopologyOptions
from squall_common.errors import ConfigError
from squall_common.names import ANONYMOUS
from squall_supervisor.confine.capabilities import Capability, held
from squall_supervisor.confine.confinement import WorkerUser

ENABLED = "supervisor.run.worker.as.user"
DEFAULT = "supervisor.run.worker.as.user.default"
CHOICES = "supervisor.run.worker.as.user.choices"
MIN_UID = "supervisor.run.worker.as.user.min.uid"
ASKED = "topology.run.as.user"

# The capabilities that it takes.
NEEDED = (
    Capability.CHOWN, Capability.DAC_OVERRIDE, Capability.FOWNER, Capability.KILL,
    Capability.SETGID, Capability.SETUID, Capability.SYS_PTRACE,
)  # fmt: skip

_LINKS_MAX = 40  # as Linux has it


class UserRefusedError(Exception):
    """A worker may not run as the user that was chosen for it; the message says why."""


@dataclass(frozen=True, slots=True)
class UserRules:
    """The rules that the operator has set."""

    default: str | None
    choices: frozenset[str]
    min_uid: int

    @classmethod
    def of(cls, options: SupervisorOptions) -> UserRules | None:
        """None means that workers run as the supervisor's user."""
        if not options.supervisor_run_worker_as_user:
            return None
        return cls(
            options.supervisor_run_worker_as_user_default,
            frozenset(options.supervisor_run_worker_as_user_choices),
            options.supervisor_run_worker_as_user_min_uid,
        )


def choose_user(rules: UserRules, owner: str | None, topology: TopologyOptions) -> str:
    """The name of the user that a topology's workers run as. `owner` is the authenticated
    submitter; None or ANONYMOUS if there was none. Raises UserRefusedError."""
    asked = topology.topology_run_as_user
    if owner and owner != ANONYMOUS:
        if asked is not None and asked != owner:
            raise UserRefusedError(
                f"the topology was submitted by {owner} and asks to run as {asked!r} ({ASKED}): "
                "workers run as the user that submitted their topology"
            )
        return owner
    if asked is not None:
        if asked not in rules.choices:
            raise UserRefusedError(
                f"the topology asks to run as {asked!r} ({ASKED}), which is not in {CHOICES} of "
                "this supervisor"
            )
        return asked
    if rules.default is None:
        raise UserRefusedError(
            f"the topology was submitted without authentication, and {DEFAULT} is not set on this "
            f"supervisor: there is no user to run its workers as"
        )
    return rules.default


def resolve(name: str, rules: UserRules) -> WorkerUser:
    """Look a user up. Raises UserRefusedError if it is unknown, root, or a system user."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise UserRefusedError(f"this machine has no user {name!r}") from None
    if entry.pw_uid == 0 or entry.pw_gid == 0:
        raise UserRefusedError(f"workers are not run as root, and {name!r} is root here")
    if entry.pw_uid < rules.min_uid:
        raise UserRefusedError(
            f"the user {name!r} has the id {entry.pw_uid}, below {MIN_UID} ({rules.min_uid})"
        )
    groups = tuple(sorted({one for one in os.getgrouplist(name, entry.pw_gid) if one != 0}))
    return WorkerUser(
        name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh"
    )


def environment_of(user: WorkerUser, environ: Mapping[str, str]) -> dict[str, str]:
    """The supervisor's environment, with the variables that name its user set for the worker's."""
    return {
        **environ,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": user.shell,
    }


def check_possible(rules: UserRules, local_dir: Path, others: Iterable[Path]) -> None:
    """Call this before anything starts. Raises ConfigError if this process may not start processes
    of other users, or if those could not reach their files. `others` are files and folders that
    every worker reads."""
    if os.geteuid() != 0:
        # If another user had been given capabilities, its workers would have them as well.
        raise ConfigError(
            f"{ENABLED} is set, but this supervisor is not root",
            hint=f"Run the supervisor as root, or without {ENABLED}.",
        )
    here = held()
    missing = [one for one in NEEDED if one not in here]
    if missing:
        names = ", ".join(f"CAP_{one.name}" for one in missing)
        raise ConfigError(
            f"{ENABLED} is set, but this supervisor may not start processes of other users: it "
            f"lacks {names}",
            hint=f"Give them to it (containers often take them from root), or leave {ENABLED} out.",
        )
    for name in sorted({*rules.choices, *([rules.default] if rules.default else [])}):
        try:
            resolve(name, rules)
        except UserRefusedError as error:
            raise ConfigError(f"{CHOICES} or {DEFAULT}: {error}") from error
    for path in (local_dir, *others, Path(sys.executable)):
        closed = first_closed(path)
        if closed is not None:
            raise ConfigError(
                f"{ENABLED} is set, but other users cannot reach {path}: they may not enter "
                f"{closed}",
                hint=f"chmod o+x {closed}",
            )


def first_closed(path: Path) -> Path | None:
    """The first folder on a path that others may not enter, on the path as written or behind any
    link on it; None if all are open."""
    here, parts, links = Path("/"), list(reversed((Path.cwd() / path).parts)), 0
    while parts:
        part = parts.pop()
        here = here.parent if part == ".." else here / part
        try:
            mode = os.lstat(here).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if links > _LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                parts += reversed(Path(os.readlink(here)).parts)
                here = here.parent
        except FileNotFoundError:
            return None  # folders that we have yet to make, we make open
        if stat.S_ISDIR(mode) and not mode & stat.S_IXOTH:
            return here
    return None
