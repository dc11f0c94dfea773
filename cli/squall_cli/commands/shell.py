"""`storm shell`: upload a folder and run a program that submits the topology in it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall_cli.options import Settings, settings_options

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient


@click.command("shell", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("folder", metavar="RESOURCES_DIR", type=click.Path(path_type=Path))
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@settings_options
def command(settings: Settings, folder: Path, program: tuple[str, ...]) -> int:
    """Upload a folder, then run COMMAND, which submits a topology over Thrift.

    COMMAND gets three more arguments: Nimbus' host, its port, and the handle of the upload for
    submitTopology. Its exit status is that of storm shell.
    """
    from squall_cli.cluster.nimbus import ask_nimbus
    from squall_common.client.upload import upload_package
    from squall_common.errors import SquallError
    from squall_common.packaging.package import build_package

    client = settings.client()

    async def send(nimbus: NimbusClient) -> tuple[str, int, str]:
        return nimbus.host, nimbus.port, await upload_package(nimbus, archive, client)

    with tempfile.TemporaryDirectory(prefix="squall-package-") as scratch:
        archive = build_package(folder, Path(scratch))
        host, port, handle = ask_nimbus(client, send, "beginFileUpload")
    try:
        status = subprocess.run([*program, host, str(port), handle], check=False).returncode
    except OSError as error:
        raise SquallError(f"cannot run {program[0]}: {error.strerror or error}") from error
    return status if status >= 0 else 128 - status
