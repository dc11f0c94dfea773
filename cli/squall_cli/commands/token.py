"""`storm token`: tokens for programs, and an end to any of them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.secure.options import certificate_options


@click.group("token", cls=Group)
def command() -> None:
    """Make, list and revoke the tokens of a secured cluster."""


@command.command("create")
@click.option("--user", metavar="USER", help="Whose token (administrators only; default: yours).")
@click.option(
    "--hours",
    type=click.IntRange(1, 90 * 24),
    default=12,
    show_default=True,
    help="Its life: above 12 hours it must list actions and topologies.",
)
@click.option("--label", default="", metavar="TEXT", help="What it is for.")
@click.option(
    "--action", "actions", multiple=True, metavar="ACTION", help="Allow only this (repeatable)."
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    metavar="NAME",
    help="Allow only this topology (repeatable).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it to a file, not to stdout.",
)
@certificate_options
@settings_options
def create(
    settings: Settings,
    user: str | None,
    hours: int,
    label: str,
    actions: tuple[str, ...],
    topologies: tuple[str, ...],
    out: Path | None,
    certificate: Path | None,
    key: Path | None,
) -> None:
    """Make a token, for example for a CI job. It is shown this once."""
    from squall_cli.secure.tokens import create_token, keep_token, with_certificate

    client = with_certificate(settings.client(), certificate, key)
    token = create_token(
        client,
        user=user,
        lifetime_secs=hours * 3600,
        label=label,
        actions=actions,
        topologies=topologies,
    )
    if out is None:
        click.echo(token)
    else:
        keep_token(token, out)
        say(f"The token is in {out}.")


@command.command("list")
@click.option("--user", metavar="USER", help="Only those of this user.")
@json_option
@settings_options
def list_tokens(settings: Settings, user: str | None, as_json: bool) -> None:
    """List the valid tokens: yours, or as an administrator all."""
    from squall_cli.cluster.nimbus import call_nimbus

    found = [_shown(one) for one in call_nimbus(settings.client(), "listTokens", user)]
    if as_json:
        print_json(found)
        return
    if not found:
        say("No tokens were found.")
        return
    from rich.table import Table

    from squall_cli.output import console, printable

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("ID", "USER", "EXPIRES", "LIMITED TO", "LABEL"):
        table.add_column(column, overflow="fold")
    for one in found:
        limits = [*(one["actions"] or ()), *(one["topologies"] or ())]
        table.add_row(
            one["id"],
            printable(one["user"]),
            one["expires"],
            printable(", ".join(limits)),
            printable(one["label"]),
        )
    console().print(table)


@command.command("revoke")
@click.argument("token_id", metavar="ID", required=False)
@click.option("--user", metavar="USER", help="All tokens of this user, instead of one.")
@settings_options
def revoke(settings: Settings, token_id: str | None, user: str | None) -> None:
    """End a token, or all tokens of a user. Every Nimbus refuses it within ten seconds."""
    from squall_cli.cluster.nimbus import call_nimbus

    if (token_id is None) == (user is None):
        raise click.UsageError("give either the ID of a token (storm token list) or --user")
    if user is not None:
        call_nimbus(settings.client(), "revokeTokens", user)
        say(f"All tokens of {user} are revoked.")
        return
    call_nimbus(settings.client(), "revokeToken", token_id)
    say(f"Token {token_id} is revoked.")


def _shown(token: Any) -> dict[str, Any]:
    """A Thrift TokenInfo, hence Any."""
    return {
        "id": token.id,
        "user": token.user,
        "issued": _time(token.issued),
        "expires": _time(token.expires),
        "label": token.label or "",
        "actions": token.actions,
        "topologies": token.topologies,
    }


def _time(secs: int) -> str:
    when = datetime.datetime.fromtimestamp(secs, datetime.UTC)
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")
