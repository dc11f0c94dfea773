"""Describes a running development cluster to a person."""

from __future__ import annotations

from typing import Any

from squall_cli.dev.plan import DevPlan
from squall_cli.output import console
from squall_common.daemon.ports import LOOPBACK


def print_report(plan: DevPlan, state: dict[str, Any]) -> None:
    """Print where everything is, and which commands to try next."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("PART", "ADDRESS", "PROCESS", "LOG"):
        table.add_column(column, no_wrap=column != "LOG", overflow="fold")
    for name in ("zookeeper", "nimbus", "drpc", "ui", "logviewer"):
        part = state[name]
        log = plan.logs / ("zookeeper.out" if name == "zookeeper" else f"{name}.log")
        table.add_row(name, f"{part['host']}:{part['port']}", str(part["pid"]), str(log))
    for planned, part in zip(plan.supervisors, state["supervisors"], strict=True):
        slots = f"slots {_ranges(part['slots'])}"
        log = plan.log_dir(planned.name) / "supervisor.log"
        table.add_row(planned.name, slots, str(part["pid"]), str(log))
    out = console()
    out.print(Text("The cluster is up.", style="bold green"))
    out.print()
    out.print(table)
    out.print()
    out.print(f"Web UI          {ui_address(plan, state)}")
    out.print(
        f"Workers log to  {plan.logs}/supervisor-N/workers-artifacts/TOPOLOGY/PORT/worker.log"
    )
    scheme = "https" if plan.secure else "http"
    out.print(
        f"DRPC over HTTP  {scheme}://{LOOPBACK}:{plan.drpc.http_port}/drpc/FUNCTION/ARGUMENTS"
    )
    out.print(f"Configuration   {plan.conf_file}")
    if plan.secure:
        out.print(f"Certificates    {plan.security}")
        out.print(f"Your token      {plan.token_file} (for 12 hours; then storm login)")
    out.print()
    out.print("In another terminal:")
    out.print(f"  export STORM_CONF_DIR={plan.data_dir}")
    out.print("  storm jar examples/wordcount wordcount ...   # see examples/wordcount/README.md")
    out.print("  storm list                                   # check that it runs")
    out.print("  storm kill wordcount -w 0                    # stop it")
    if plan.secure:
        out.print(
            f"  storm login --open {ui_address(plan, state).rstrip('/')}   # log a browser in"
        )
    out.print()
    out.print("Ctrl-C here stops the cluster, including its workers, and keeps its data.")


def ui_address(plan: DevPlan, state: dict[str, Any]) -> str:
    """Where the UI's first page is."""
    scheme = "https" if plan.secure else "http"
    return f"{scheme}://{state['ui']['host']}:{state['ui']['port']}/"


def _ranges(ports: list[int]) -> str:
    """`6700-6703`, or the ports one by one when they are not in a row."""
    if len(ports) > 2 and ports[-1] - ports[0] == len(ports) - 1:
        return f"{ports[0]}-{ports[-1]}"
    return ",".join(map(str, ports))
