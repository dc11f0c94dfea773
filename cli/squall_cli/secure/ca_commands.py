"""`storm admin ca`: the CA of a secured cluster. Works on a folder and asks no cluster."""

from __future__ import annotations

from pathlib import Path

import click

from squall_cli.groups import Group
from squall_cli.output import say
from squall_cli.secure.options import authority_option
from squall_cli.secure.rotation_commands import rotate

# As in squall_common.security.identity, which the help does not import.
_ROLES = ("user", "nimbus", "supervisor", "drpc", "ui", "logviewer")


@click.group("ca", cls=Group)
def ca() -> None:
    """Make certificates of a secured cluster, and revoke them."""


ca.add_command(rotate)


@ca.command("init")
@click.argument("cluster", metavar="CLUSTER")
@authority_option
@click.option(
    "--days", type=click.IntRange(1, 36500), default=3650, show_default=True, help="Its life."
)
def init(cluster: str, folder: Path, days: int) -> None:
    """Make the CA of a cluster. Its folder holds the key to everything: keep it elsewhere."""
    from squall_cli.secure.authority_folder import AuthorityFolder

    authority = AuthorityFolder(folder)
    authority.create(cluster, days=days)
    say(f"The CA of {cluster} is in {folder}.")
    say(f"Every process of the cluster gets {authority.certificate} as storm.security.ca.")


@ca.command("issue")
@click.argument("role", type=click.Choice(_ROLES), metavar="ROLE")
@click.argument("name", metavar="NAME")
@authority_option
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="Name or address under which others reach a daemon (repeatable).",
)
@click.option(
    "--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Its life."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("."),
    help="Folder for the certificate and its key (default: here).",
)  # fmt: skip
def issue(role: str, name: str, folder: Path, hosts: tuple[str, ...], days: int, out: Path) -> None:
    """Make a certificate: of a user, or of a daemon (nimbus, supervisor, drpc, ui, logviewer).

    A supervisor's NAME becomes its id.
    """
    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_common.security.identity import Role

    if role in ("nimbus", "supervisor") and not hosts:
        raise click.UsageError(f"a {role} needs --host: others check it when they connect")
    certificate, key = AuthorityFolder(folder).issue(Role(role), name, hosts, out, days=days)
    say(f"storm.security.certificate: {certificate.absolute()}")
    say(f"storm.security.key: {key.absolute()}")


@ca.command("revoke")
@click.argument("what", metavar="FILE|SERIAL")
@authority_option
def revoke(what: str, folder: Path) -> None:
    """Revoke a certificate. Then copy revoked.jws to the daemons (storm.security.revoked)."""
    from squall_cli.secure.authority_folder import AuthorityFolder

    authority = AuthorityFolder(folder)
    serial, number = authority.revoke(what)
    say(f"Certificate {serial:x} is revoked, by list {number}: {authority.revoked}")
    say("Daemons read their copy of it within ten seconds.")


@ca.command("serve")
@click.argument("folders", metavar="PATH:ROLES:UID", nargs=-1, required=True)
@authority_option
@click.option("--cluster", default="squall", show_default=True, help="Name of a new CA's cluster.")
@click.option(
    "--account", "accounts", multiple=True, help="A user whom all machines have (repeatable)."
)
def serve(folders: tuple[str, ...], folder: Path, cluster: str, accounts: tuple[str, ...]) -> None:
    """Give certificates to the containers of one machine, over sockets in shared folders.

    In the folder PATH, the user with the id UID gets certificates of the listed roles:
    /enrol/ui:ui:1000. ROLE=NAME allows one name only. The CA is made if there is none.
    """
    import asyncio

    from squall_cli.secure.authority_folder import AuthorityFolder
    from squall_cli.secure.enrolment import Accounts, EnrolmentServer, Folder, users_of_image

    try:
        parsed = [Folder.parse(one) for one in folders]
    except ValueError:
        raise click.UsageError("a folder is PATH:ROLE[=NAME][,ROLE...]:UID") from None
    authority = AuthorityFolder(folder)
    if not (folder / "ca.key").exists():
        authority.create(cluster)
        say(f"The CA of {cluster} is in {folder}.")

    async def run() -> None:
        known = Accounts(folder / "accounts", accounts, users_of_image())
        server = EnrolmentServer(authority, parsed, known)
        await server.start()
        try:
            await server.run()
        finally:
            await server.close()

    asyncio.run(run())
