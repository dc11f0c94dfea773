"""`storm upload-credentials`: replace the credentials of a running topology."""

from __future__ import annotations

from pathlib import Path

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument
from squall_common.errors import SquallError


@click.command("upload-credentials")
@topology_argument
@click.argument("pairs", nargs=-1, metavar="[KEY VALUE]...")
@click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Java properties file with credentials: lines of key=value. Keys on the command line "
    "take precedence.",
)
@click.option("-u", "--user", "owner", metavar="USER", help="The owner of the topology.")
@click.option(
    "-e",
    "--exception-when-empty",
    "fail_when_empty",
    is_flag=True,
    help="Fail if there are no credentials.",
)
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    pairs: tuple[str, ...],
    path: Path | None,
    owner: str | None,
    fail_when_empty: bool,
    as_json: bool,
) -> None:
    """Replace the credentials of a running topology.

    Its components find them in context.credentials, and their credentials_updated() is called.
    Nimbus keeps them, and no command prints them. Values on a command line are visible to other
    users of this machine; --file avoids that.
    """
    from squall_common.config.properties import read_credentials
    from squall_common.security.credentials import check_credentials
    from squall_thrift import storm

    if len(pairs) % 2:
        raise click.UsageError(f"{pairs[-1]!r} has no value: give pairs of KEY and VALUE")
    credentials = {} if path is None else read_credentials(path)
    credentials |= dict(zip(pairs[::2], pairs[1::2], strict=True))
    client = settings.client()
    check_credentials(credentials)
    if credentials:
        sent = storm.Credentials(creds=credentials, topoOwner=owner)
        call_nimbus(client, "uploadNewCredentials", topology_name, sent)
    elif fail_when_empty:
        raise SquallError("there are no credentials to upload")
    if as_json:
        print_json({"topology": topology_name, "keys": sorted(credentials)})
    elif credentials:
        say(f"Uploaded {len(credentials)} credentials to {topology_name}.")
    else:
        say("There are no credentials to upload, and nothing was changed.")
