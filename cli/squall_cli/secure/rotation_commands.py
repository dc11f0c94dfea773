"""`storm admin ca rotate`: the CA's own key turns, and the cluster runs on."""

from __future__ import annotations

import time
from pathlib import Path

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, settings_options
from squall_cli.output import printable, say
from squall_cli.secure.options import authority_option


@click.group("rotate", cls=Group)
def rotate() -> None:
    """Replace the CA's own key, step by step, while the cluster runs."""


@rotate.command("begin")
@authority_option
@click.option(
    "--days", type=click.IntRange(1, 36500), default=3650, show_default=True, help="Its life."
)
def begin(folder: Path, days: int) -> None:
    """Make the next CA. Then copy ca.pem, which has both, to every process of the cluster."""
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.rotation import Rotation

    authority = AuthorityFolder(folder)
    new = Rotation(authority).begin(days=days)
    say(f"{authority.certificate} has two CAs; the new one is of generation {new.generation}.")
    say("Copy it over storm.security.ca everywhere, also to users: daemons and workers follow")
    say("within a minute. When all have it: 'storm admin ca rotate issue'.")


@rotate.command("issue")
@click.argument(
    "files",
    metavar="[CERTIFICATE]...",
    nargs=-1,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@authority_option
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Their life."
)
def issue(files: tuple[Path, ...], folder: Path, days: int) -> None:
    """Let the next CA issue, and replace certificates in place by ones of it.

    Each keeps its key, so that one file changes at once. Daemons take it up within ten seconds.
    May be repeated, with more files.
    """
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.rotation import Rotation

    authority = AuthorityFolder(folder)
    rotation = Rotation(authority)
    rotation.turn()
    for file in files:
        done = authority.certify(file, days=days)
        say(f"{file}: {'replaced' if done else 'was replaced before'}")
    say(f"The next CA issues. Copy {authority.certificate} and {authority.revoked} to the daemons.")
    _say_left(rotation)


@rotate.command("end")
@authority_option
@click.option(
    "--force",
    is_flag=True,
    help="Also if holders have no certificate of the next CA.",
)
def end(folder: Path, force: bool) -> None:
    """Trust the next CA alone, and remove the key of the old one. Then copy ca.pem once more.

    'rotate status --check' says before whether all is ready.
    """
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.rotation import Rotation, Stage
    from squall_common.errors import SquallError

    authority = AuthorityFolder(folder)
    rotation = Rotation(authority)
    if rotation.stage is Stage.TURNED and not force and (left := rotation.left()):
        raise SquallError(
            f"{len(left)} certificates would count no longer, first that of "
            f"{printable(left[0]['role'])}:{printable(left[0]['name'])}",
            hint="'rotate issue FILE...' replaces them, 'storm admin ca revoke' says that they are "
            "not needed; --force ends them.",
        )
    rotation.end()
    say(f"The old CA is gone. Copy {authority.certificate} over storm.security.ca everywhere.")


@rotate.command("status")
@authority_option
@click.option("--check", is_flag=True, help="Ask the cluster, too; ends with 1 until it is ready.")
@settings_options
def status(settings: Settings, folder: Path, check: bool) -> int:
    """Say how far it has come. With --check: what in the cluster stands on the old CA alone."""
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.rotation import Rotation

    authority = AuthorityFolder(folder)
    rotation = Rotation(authority)
    say(f"{rotation.stage.value}.")
    from squall_common.security.certificates import generation_of

    for one in authority.authorities().certificates:
        days = int((one.not_valid_after_utc.timestamp() - time.time()) // 86_400)
        ends = f"{one.not_valid_after_utc:%Y-%m-%d}"
        say(f"CA of generation {generation_of(one)}: ends {ends}, in {days} days.")
    left = _say_left(rotation)
    if not check:
        return 0
    from squall_cli.secure.rotation_check import passing

    found = passing(settings, authority.authorities())
    for line in found:
        say(printable(line))
    if found or left:
        return 1
    say("All that the cluster shows stands on the newest CA.")
    return 0


def _say_left(rotation: object) -> int:
    from squall_cli.secure.rotation import Rotation, Stage

    assert isinstance(rotation, Rotation)
    if rotation.stage is Stage.NONE:
        return 0
    left = rotation.left()
    for line in left:
        say(
            f"Without a certificate of the next CA: {printable(line['role'])}:"
            f"{printable(line['name'])}"
        )
    return len(left)
