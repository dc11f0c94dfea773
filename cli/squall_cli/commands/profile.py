"""`storm profile`: shows where the workers of a topology spend their time."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument
from squall_common.config.options.typed import ClientOptions

if TYPE_CHECKING:
    from squall_cli.cluster.worker_requests import WorkerRequest
    from squall_thrift import storm

_POLL_SECS = 0.3
_SAMPLE_SECS_MAX = 60
_ROWS = 20  # functions that are shown
# The time that a supervisor may need besides the profile itself: to see the request (by its watch,
# or at the latest by its next reading) and to write the file.
_SLACK_SECS = 60.0


@dataclass(slots=True)
class _Asked:
    """A request to one worker."""

    request: WorkerRequest
    folder: Path | None  # its log folder, when the worker runs on this machine
    done: bool = False
    error: str | None = None
    copy: Path | None = None

    @property
    def worker(self) -> str:
        return self.request.worker

    @property
    def file(self) -> str:
        return self.request.file


@click.command("profile")
@topology_argument
@click.option(
    "--worker",
    "only",
    metavar="HOST:PORT",
    help="Only this worker (default: every worker of the topology).",
)
@click.option(
    "--component",
    metavar="COMPONENT",
    help="Instead of whole workers: the Python stacks of one component.",
)
@click.option(
    "--task",
    type=click.IntRange(1),
    metavar="TASK",
    help="Instead of whole workers: the Python stacks of one task.",
)
@click.option(
    "--secs",
    type=click.IntRange(1, 3600),
    metavar="SECS",
    default=10,
    show_default=True,
    help="How long to sample; stacks of a component or a task for at most 60.",
)
@click.option(
    "--stack",
    "what",
    flag_value="stack",
    help="Instead of a flame graph: the stacks of threads and asyncio tasks, and the state of "
    "every executor.",
)
@click.option(
    "--heap",
    "what",
    flag_value="heap",
    help="Instead of a flame graph: the objects in memory, by type.",
)
@click.option(
    "--restart",
    "what",
    flag_value="restart",
    help="Instead of a flame graph: drain the worker and start it again.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    default=Path(),
    help="Folder for copies of the files of this machine's workers (default: the current one).",
)
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    only: str | None,
    component: str | None,
    task: int | None,
    secs: int,
    what: str | None,
    output: Path,
    as_json: bool,
) -> int:
    """Profile the workers of a topology: a flame graph of each, stacks, or memory.

    With --component or --task the workers that run it sample its Python stacks, and a table shows
    the functions in which its time goes, of this machine's workers. ITSELF is the share of samples
    that end in the function, WAITS the part of them in which it was on no CPU.

    The files are beside the worker's logs on its machine; those on this machine are copied here.
    """
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError
    from squall_thrift import storm

    client = settings.client()
    if component is not None or task is not None:
        if what is not None:
            raise SquallError(f"--{what} is about whole workers; leave --component and --task out")
        if secs > _SAMPLE_SECS_MAX:
            raise SquallError(f"--secs {secs}: a component is sampled for at most 60 s")
        what = "samples"
    what = what or "flamegraph"
    summary = call_nimbus(client, "getTopologySummaryByName", topology_name)
    page = call_nimbus(client, "getTopologyPageInfo", summary.id, ":all-time", True)
    workers = _workers(page.workers or [], topology_name, only)
    if what == "samples":
        workers = _that_run(client, summary.id, workers, component, task)
    now_ms = int(time.time() * 1000)
    sampled = what in ("flamegraph", "samples")
    stamp = now_ms + secs * 1000 if sampled else now_ms
    action = {
        "flamegraph": storm.ProfileAction.JPROFILE_START,
        "samples": storm.ProfileAction.SAMPLE_TASKS,
        "stack": storm.ProfileAction.JSTACK_DUMP,
        "heap": storm.ProfileAction.JMAP_DUMP,
        "restart": storm.ProfileAction.JVM_RESTART,
    }[what]
    output.mkdir(parents=True, exist_ok=True)
    asked = [_ask(client, worker, action, stamp) for worker in workers]
    if not as_json:
        for one in asked:
            say(f"{_DOING[what]} {one.worker} ..." + (f" {secs} s" if sampled else ""))
    limit = _SLACK_SECS + (secs if sampled else 0)
    try:
        _wait(client, topology_name, asked, time.monotonic() + limit)
    except KeyboardInterrupt:
        if sampled:
            say("Interrupted: the workers finish sampling and then write their files.")
        raise
    for one in asked:
        _fetch(one, topology_name, output, what)
    if as_json:
        print_json([_as_json(one, summary.id, what) for one in asked])
    else:
        for one in asked:
            _print_outcome(one, summary.id, what)
        if what == "samples":
            _print_functions([one.copy for one in asked if one.copy is not None], component, task)
    failed = [one for one in asked if one.error is not None]
    if failed and not as_json:
        raise SquallError("; ".join(f"{one.worker}: {one.error}" for one in failed))
    return 1 if failed else 0


_DOING = {
    "flamegraph": "Sampling",
    "samples": "Sampling",
    "stack": "Requesting the stacks of",
    "heap": "Requesting the objects of",
    "restart": "Restarting",
}


def _workers(found: list[storm.WorkerSummary], topology_name: str, only: str | None) -> list[Any]:
    """The selected workers. (Any: Thrift has every field optional, Nimbus sets them.)"""
    from squall_common.errors import SquallError

    found = sorted(found, key=lambda one: (one.host or "", one.port or 0))
    names = [f"{one.host}:{one.port}" for one in found]
    if not found:
        raise SquallError(f"{topology_name} has no running workers")
    if only is None:
        return found
    chosen = [one for one, name in zip(found, names, strict=True) if name == only]
    if not chosen:
        raise SquallError(
            f"{topology_name} has no worker {only}", hint=f"Its workers: {', '.join(names)}."
        )
    return chosen


def _that_run(
    client: ClientOptions,
    topology_id: str,
    workers: list[Any],
    component: str | None,
    task: int | None,
) -> list[Any]:
    """Those of the workers that run the component or the task. Raises SquallError."""
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError

    info = call_nimbus(client, "getTopologyInfo", topology_id)
    places = set()
    for one in info.executors:
        tasks = range(one.executor_info.task_start, one.executor_info.task_end + 1)
        if component in (None, one.component_id) and (task is None or task in tasks):
            places.add((one.host, one.port))
    found = [one for one in workers if (one.host, one.port) in places]
    if not found:
        what = " of ".join(
            ([f"task {task}"] if task is not None else []) + ([component] if component else [])
        )
        raise SquallError(
            f"no worker runs {what} now", hint="`storm status` names components and their tasks."
        )
    return found


def _print_functions(copies: list[Path], component: str | None, task: int | None) -> None:
    """The functions in which the samples of a component, or of a task, end. Nothing without a
    copy: then all samples are on other machines, or failed."""
    from squall_cli.output import print_table

    if not copies:
        return
    total = 0
    itself: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for copy in copies:
        for line in copy.read_text(errors="replace").splitlines():
            parts = line.split("\t")
            if line.startswith("#") or len(parts) != 5:
                continue
            cpu, name, number, count, frames = parts
            if component not in (None, name) or (task is not None and int(number) != task):
                continue
            names = frames.split(";")
            total += int(count)
            itself[names[-1]] += int(count)
            waits[names[-1]] += int(count) if cpu == "off" else 0
            within.update(dict.fromkeys(names, int(count)))
    if not total:
        say("Nothing was seen: it did nothing in this time.")
        return
    print_table(
        ("FUNCTION", "ITSELF", "WAITS", "WITH CALLS"),
        (
            (name, f"{n / total:.0%}", f"{waits[name] / total:.0%}", f"{within[name] / total:.0%}")
            for name, n in itself.most_common(_ROWS)
        ),
    )


def _ask(client: ClientOptions, worker: Any, action: storm.ProfileAction, stamp: int) -> _Asked:
    from squall_cli.cluster.worker_requests import send
    from squall_cli.cluster.workers import artifacts_dir

    folder = artifacts_dir(worker.topology_id, worker.supervisor_id, worker.port)
    return _Asked(send(client, worker, action, stamp), folder)


def _wait(client: ClientOptions, topology_name: str, asked: list[_Asked], deadline: float) -> None:
    """Wait until every request is done, has failed, or is out of time."""
    from squall_cli.cluster.worker_requests import failures, is_pending, reason_of

    while True:
        for one in asked:
            one.done = one.done or not is_pending(client, one.request)
        if all(one.done for one in asked):
            break
        if time.monotonic() >= deadline:
            for one in asked:
                if not one.done:
                    one.error = "its supervisor did not answer in time; is it running?"
            break
        time.sleep(_POLL_SECS)
    failed = failures(client, topology_name)
    for one in asked:
        one.error = reason_of(one.request, failed) or one.error


def _fetch(one: _Asked, topology_name: str, output: Path, what: str) -> None:
    """Copy the file here if the worker is on this machine."""
    if one.error is not None or what == "restart" or one.folder is None:
        return
    source = one.folder / one.file
    # With the stamp in the file's name, a later copy does not replace an earlier one.
    target = output / f"{topology_name}-{one.request.host}-{one.request.port}-{one.file}"
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        one.error = f"its file cannot be copied: {error}"
    else:
        one.copy = target


def _place(one: _Asked, topology_id: str) -> str:
    """Where the original is."""
    if one.folder is not None:
        return str(one.folder / one.file)
    return f"{one.request.host}: workers-artifacts/{topology_id}/{one.request.port}/{one.file}"


def _print_outcome(one: _Asked, topology_id: str, what: str) -> None:
    if one.error is not None:
        return
    if what == "restart":
        say(f"{one.worker} is restarting: it drains, exits and is started again.")
    elif one.copy is not None:
        click.echo(str(one.copy))
        say(f"(from {_place(one, topology_id)})")
    else:
        click.echo(_place(one, topology_id))
        say("(below storm.log.dir of that supervisor; this machine cannot read it)")


def _as_json(one: _Asked, topology_id: str, what: str) -> dict[str, Any]:
    return {
        "worker": one.worker,
        "action": what,
        "file": None if what == "restart" or one.error else _place(one, topology_id),
        "copy": None if one.copy is None else str(one.copy),
        "error": one.error,
    }
