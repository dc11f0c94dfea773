"""`storm login`: get a token with one's certificate, for the commands that follow."""

from __future__ import annotations

from pathlib import Path

import click

from squall_cli.options import Settings, settings_options
from squall_cli.output import say
from squall_cli.secure.options import certificate_options


@click.command("login")
@certificate_options
@click.option(
    "--hours", type=click.IntRange(1, 12), default=12, show_default=True, help="The token's life."
)
@settings_options
def command(settings: Settings, certificate: Path | None, key: Path | None, hours: int) -> None:
    """Get a token for commands, with your certificate.

    It lies in ~/.storm/token, or where storm.security.token.file says, for you alone.
    """  # fmt: skip
    from squall_cli.secure.tokens import create_token, keep_token, token_file, with_certificate

    client = settings.client()
    path = token_file(client)
    shown = with_certificate(client, certificate, key)
    keep_token(create_token(shown, user=None, lifetime_secs=hours * 3600, label="login"), path)
    say(f"You are logged in for {hours} hours: the token is in {path}.")
