"""`storm dev`: a whole cluster on this machine."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_common.daemon.output.printing import (
    drop_unwritten,
    hold_standard_streams,
    print_if_possible,
)
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from squall_cli.dev.plan import DevPlan


@click.command("dev")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the cluster's files (default: one for each user).",
)
@click.option(
    "--supervisors",
    type=click.IntRange(min=1, max=64),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of supervisors.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1, max=256),
    default=4,
    show_default=True,
    metavar="N",
    help="Worker slots of each supervisor.",
)
@click.option(
    "--free-ports",
    is_flag=True,
    help="Use free ports instead of 2181, 6627, 3772 to 3774, 8000, 8080 and 6700 on.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Make a CA, certificates and a token for you: only callers that prove who they are may "
    "use it.",
)
@click.option("--open", "opens", is_flag=True, help="Open the web UI in a browser.")
@json_option
@settings_options
def command(
    settings: Settings,
    data_dir: Path | None,
    supervisors: int,
    slots: int,
    free_ports: bool,
    secure: bool,
    opens: bool,
    as_json: bool,
) -> int:
    """Run a whole cluster on this machine until Ctrl-C.

    It consists of ZooKeeper, Nimbus, supervisors, a DRPC server, the web UI and a logviewer, all on
    127.0.0.1. A daemon that dies is restarted. Ctrl-C (or SIGTERM) stops everything, including
    workers; the data folder is kept, and the next 'storm dev' with it continues from there. With
    --json, one line of JSON on stdout gives all addresses, once everything answers.
    """
    import asyncio

    from squall_cli.dev.plan import check_ports, default_data_dir, make_plan
    from squall_common.daemon.ports import free_ports as choose_free_ports
    from squall_common.daemon.ports import port_is_free

    hold_standard_streams()
    plan = make_plan(
        data_dir=(data_dir or default_data_dir()).absolute(),
        supervisors=supervisors,
        slots=slots,
        free_ports=choose_free_ports if free_ports else None,
        is_free=port_is_free,
        site_conf=Settings(settings.config_file).load(daemon=True),
        overrides=settings.parsed_overrides(),
        secure=secure,
    )
    check_ports(plan, port_is_free)
    return asyncio.run(_run(plan, as_json=as_json, opens=opens))


async def _run(plan: DevPlan, *, as_json: bool, opens: bool) -> int:
    import asyncio
    import signal

    from squall_cli.dev.cluster import DevCluster
    from squall_cli.output import say

    async def live() -> None:
        if not as_json:
            say("Starting ZooKeeper, Nimbus, the supervisors, DRPC and the UI ...")
        async with DevCluster(plan, say) as cluster:
            if as_json:
                print_if_possible(json.dumps(cluster.state()), sys.stdout)
            else:
                _report(plan, cluster.state())
            if opens:
                await asyncio.to_thread(_open, plan, cluster.state(), say)
            await cluster.wait_removed()
        raise SquallError(f"the data folder {plan.data_dir} was removed: the cluster has ended")

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(live())

    def end() -> None:
        # Further signals change nothing: stopping is bounded in time, and must not leave half a
        # cluster behind.
        task.cancel()
        for number in signals:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        if not as_json:
            say("Stopping the cluster ...")

    for number in signals:
        loop.add_signal_handler(number, end)
    try:
        await task
    except asyncio.CancelledError:
        if not as_json:
            say("The cluster has stopped.")
    finally:
        for stream in (sys.stdout, sys.stderr):
            drop_unwritten(stream)
    return 0


def _open(plan: DevPlan, state: dict[str, Any], say: Callable[[str], None]) -> None:
    """Show the UI in a browser, if there is one."""
    import webbrowser

    from squall_cli.dev.report import ui_address

    address = ui_address(plan, state)
    if plan.secure:
        from squall_cli.dev.secure import user_options
        from squall_cli.secure.browser import login_page

        try:
            page = login_page(user_options(plan), address, plan.token_file)
        except SquallError as error:
            say(str(error))
            return
        address = page.as_uri()
    if not webbrowser.open(address):
        say(f"No browser could be started: open {address} in one.")


def _report(plan: DevPlan, state: dict[str, Any]) -> None:
    """Print where everything is. If that fails, the cluster runs anyway."""
    from squall_cli.dev.report import print_report

    # rich ends the program when the reader of a pipe is gone.
    if sys.stdout is not None:
        with contextlib.suppress(OSError, SystemExit):
            print_report(plan, state)
