"""`storm login`: get a token with one's certificate, for the commands that follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall_cli.options import Settings, settings_options
from squall_cli.output import say
from squall_cli.secure.options import certificate_options

if TYPE_CHECKING:
    from squall_common.config.options.typed import ClientOptions


@click.command("login")
@certificate_options
@click.option(
    "--hours", type=click.IntRange(1, 12), default=12, show_default=True, help="The token's life."
)
@click.option(
    "--open",
    "ui",
    metavar="URL",
    help="Log a browser in, too: the address of the UI, as https://ui.example.org:8080.",
)
@settings_options
def command(
    settings: Settings, certificate: Path | None, key: Path | None, hours: int, ui: str | None
) -> None:
    """Get a token for commands, with your certificate.

    It is stored in ~/.storm/token, or where storm.security.token.file says; only you can read it.
    With --open, and without a certificate, a browser is logged in with the token that is there.
    """  # fmt: skip
    from squall_cli.secure.tokens import token_file

    client = settings.client()
    path = token_file(client)
    if ui is None or certificate or client.storm_security_certificate:
        _get_token(client, path, certificate, key, hours)
    if ui is not None:
        from squall_cli.secure.browser import login_page, show

        page = login_page(client, ui, path)
        if not show(page):
            say(f"No browser could be started: open {page.as_uri()} in one, within a minute.")


def _get_token(
    client: ClientOptions, path: Path, certificate: Path | None, key: Path | None, hours: int
) -> None:
    from squall_cli.secure.tokens import create_token, keep_token, with_certificate

    shown = with_certificate(client, certificate, key)
    keep_token(create_token(shown, user=None, lifetime_secs=hours * 3600, label="login"), path)
    say(f"You are logged in for {hours} hours: the token is in {path}.")
