"""`storm drpc-client`: call DRPC functions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import say

_NOTE_SECS = 10.0


@click.command("drpc-client", no_args_is_help=True)
@click.option(
    "-f",
    "--function",
    metavar="NAME",
    help="Call this function, once for each argument.",
)
@click.option(
    "--timeout",
    "timeout_secs",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECS",
    help="Time to wait for each result (default: drpc.request.timeout.secs).",
)
@click.argument("arguments", nargs=-1, metavar="[FUNCTION ARGUMENT]...")
@json_option
@settings_options
def command(
    settings: Settings,
    function: str | None,
    timeout_secs: float | None,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Call DRPC functions one after the other and print the results.

    Without --function, the arguments are pairs of a function and its argument. The servers are
    those of drpc.servers, or one on this machine.
    """
    calls = _calls(function, arguments)
    import msgspec

    from squall_drpc.client import DRPCClient

    options = settings.client()
    if options.drpc_servers is None:
        options = msgspec.structs.replace(options, drpc_servers=("127.0.0.1",))
    results = []
    with DRPCClient.of(options) as client:
        for name, argument in calls:
            with _noted(name):
                result = client.execute(name, argument, timeout_secs=timeout_secs)
            if as_json:
                results.append({"function": name, "args": argument, "result": result})
            else:
                click.echo(result)
    if as_json:
        from squall_cli.output import print_json

        print_json(results)


@contextlib.contextmanager
def _noted(function: str) -> Iterator[None]:
    """Say after a while what is waited for: a function that no topology serves looks like a slow
    one, for as long as the server keeps requests."""
    note = threading.Timer(
        _NOTE_SECS,
        say,
        [f"waiting for a result of {function!r}; --timeout SECS gives up sooner"],
    )
    note.daemon = True
    note.start()
    try:
        yield
    finally:
        note.cancel()


def _calls(function: str | None, arguments: tuple[str, ...]) -> list[tuple[str, str]]:
    if function is not None:
        return [(function, argument) for argument in arguments or ("",)]
    if len(arguments) % 2:
        raise click.UsageError(
            f"function {arguments[-1]!r} has no argument: give pairs of FUNCTION and ARGUMENT, or "
            "--function NAME."
        )
    return list(zip(arguments[::2], arguments[1::2], strict=True))
