"""`squall_spark.run`: a topology on Spark from a program or a notebook, with data frames as its
inputs and outputs."""

from __future__ import annotations

import atexit
import contextlib
import html
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall import TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.errors import PackageError, SquallError
from squall_common.topology.model import PythonObject, Topology
from squall_spark.before import check_inputs, check_outputs
from squall_spark.data.bad_records import OnBadRecord
from squall_spark.data.bindings import (
    Format,
    Source,
    StreamName,
    Target,
    parse_input,
    parse_output,
    parse_stream,
)
from squall_spark.job import absolute_source, absolute_target, with_fields, with_filters
from squall_spark.plan import Sink, SparkPlan, make_plan, with_parallelism
from squall_spark.tasks.code import Code
from squall_spark.traits import traits_of
from squall_spark.view.explain import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from squall_spark.batch import Frames

_MASTER = "local[*]"


class Result(Mapping[str, Any]):
    """What a topology on Spark has emitted: a mapping from streams (`"count"`, `"shop:orders"`) to
    Spark DataFrames. A notebook draws the topology and lists them.

    Tuples that are read more than once are kept on the executors' disks until `release`, or the end
    of a `with` statement; after that, a data frame computes its tuples again.
    """

    def __init__(self, plan: SparkPlan, frames: Frames, outputs: Mapping[str, DataFrame]) -> None:
        self.plan = plan
        self._frames = frames
        self._outputs = dict(outputs)

    def __getitem__(self, stream: str) -> DataFrame:
        """The DataFrame of a stream. Raises KeyError."""
        return self._outputs[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release what is kept on the executors' disks."""
        self._frames.release()

    @property
    def totals(self) -> dict[str, tuple[int, int]]:
        """For each component, how many tuples its tasks have taken and emitted so far."""
        return self._frames.totals()

    def explain(self) -> str:
        """The plan as text: inputs, stages, what moves, outputs."""
        return explain(self.plan, self._frames.spark.sparkContext.master or "?")

    def __repr__(self) -> str:
        return f"Result({', '.join(f'{name}: {frame}' for name, frame in self.items())})"

    def _repr_html_(self) -> str:
        """In a notebook: the topology with the tuples that its components have emitted so far, the
        outputs and the plan."""
        notes = {
            id_: f"{emitted:,} emitted" for id_, (_, emitted) in self.totals.items() if emitted
        }
        rows = ""
        for name, frame in self.items():
            columns = ", ".join(f"{column} {type_}" for column, type_ in frame.dtypes)
            cells = (f"<td><code>{html.escape(text)}</code></td>" for text in (name, columns))
            rows += f"<tr>{''.join(cells)}</tr>"
        return (
            f"{_without_sinks(self.plan).to_svg(notes)}"
            f"<table><tr><th>output</th><th>columns</th></tr>{rows}</table>"
            f"<details><summary>plan</summary><pre>{html.escape(self.explain())}</pre></details>"
        )


def run(
    topology: Topology | TopologyBuilder,
    inputs: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | Mapping[str, str] | str | None = None,
    *,
    spark: SparkSession | None = None,
    conf: Mapping[str, Any] | None = None,
    name: str = "topology",
    parallelism: Mapping[str, int] | None = None,
    on_bad_record: str = "fail",
    overwrite: bool = False,
    filters: Mapping[str, str] | None = None,
    partition_by: Mapping[str, Sequence[str]] | None = None,
    current: Mapping[str, str] | None = None,
    keys: Mapping[str, Sequence[str]] | None = None,
    progress: bool | None = None,
) -> Result:
    """Run a topology on Spark, as a batch job.

        counts = squall_spark.run(builder, {"sentences": df}, ["count"])["count"]
        counts.orderBy("count").show()

    `inputs` replaces spouts: a Spark or pandas DataFrame, a pyarrow Table, or a path as after
    `--input SPOUT=`; the keys are spouts, or `spout:stream`. Columns are matched to the spout's
    fields by name. `outputs` are the streams to return, as a name or several (None: all that no
    bolt consumes), or a mapping from streams to places as after `--output BOLT=`, which are written
    as well. `parallelism` sets numbers of tasks by component, `conf` is the topology's
    configuration, `filters` are conditions in SQL by input, `on_bad_record` is `"fail"`, `"skip"`
    or a folder, `overwrite` replaces existing outputs. `partition_by` are fields by written output:
    a folder for each of their values. `current` are places by stream, as after `--current BOLT=`,
    that get the newest tuple of each key, and `keys` are the fields of these keys.

    `spark` is the session; by default the active one, or a new one on all cores of this machine,
    which is kept for later calls and ends with the program. Spark Connect is not supported.
    `progress` shows progress on stderr (None: if it is a terminal or a notebook).

    A stream whose types are plain and declared is lazy: it runs when its DataFrame is used, and
    its errors are Spark's. Otherwise its bolts have run when this returns.

    Classes of a notebook's own (`__main__`) travel to Spark's workers by value. Modules, also that
    of a program, must be importable there; on this machine they are if they are here. So a program
    calls this below `if __name__ == "__main__":`.

    Raises SquallError: for a topology that Spark cannot run, for data that does not fit, and with
    the component's error when a tuple fails.
    """
    _refuse_in_worker()
    made = topology.build() if isinstance(topology, TopologyBuilder) else topology
    made = with_parallelism(made, parallelism or {})
    given, sources = _inputs(inputs or {})
    sources = with_filters(sources, filters or {})
    stored = normalize_topology_conf(
        conf or {}, default_conf(), name=name, components=made.component_confs
    )
    targets = with_fields(
        _targets(made, outputs), _places(current or {}, "--current"), partition_by or {}, keys or {}
    )
    plan = make_plan(name, made, stored, traits_of(made), sources, targets)
    check_inputs(plan)
    written = [sink for sink in plan.sinks if sink.format is not Format.FRAME]
    check_outputs(written, overwrite=overwrite)
    session = spark or _active_session(name)
    code = _code(plan, session)
    return _computed(session, plan, code, given, OnBadRecord.parse(on_bad_record), written,
                     overwrite=overwrite, progress=progress)  # fmt: skip


def _refuse_in_worker() -> None:
    """A Python worker of Spark imports the program that has the components."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and pyspark.TaskContext.get() is not None:
        raise SquallError(
            "squall_spark.run was called by one of Spark's workers, which imports the module of a "
            'component: put the call below `if __name__ == "__main__":`'
        )


def _computed(
    session: SparkSession,
    plan: SparkPlan,
    code: Code,
    given: Mapping[StreamName, Any],
    on_bad: OnBadRecord,
    written: Sequence[Sink],
    *,
    overwrite: bool,
    progress: bool | None,
) -> Result:
    from squall_spark.batch import Frames, compute, write_mode, write_output
    from squall_spark.current.write import held
    from squall_spark.entry import is_of_spark, spark_error
    from squall_spark.view.progress import Progress, silent

    shown = sys.stderr.isatty() or "ipykernel" in sys.modules if progress is None else progress
    step = Progress(session.sparkContext).step if shown else silent
    undo = contextlib.ExitStack()
    try:
        modes = {sink: write_mode(session, sink, overwrite=overwrite) for sink in written}
        data = {stream: _frame(session, plan, stream, value) for stream, value in given.items()}
        frames = Frames(session, plan, code, data=data, on_bad=on_bad)
        undo.callback(frames.release)
        with step("opening the inputs"):
            frames.build()
        outputs = {}
        for sink in plan.sinks:
            with step(sink.name):
                look = frames.look(sink)
            if sink in modes:
                with step(f"writing {sink.shown}"), held([sink]):
                    frame = write_output(frames, sink, look, mode=modes[sink])
            else:
                frame = frames.typed(sink, look)
            if not sink.key:
                outputs[str(sink.stream)] = frame
        for component in frames.unread():
            with step(component):
                compute(frames.of[component])
    except BaseException as error:
        with contextlib.suppress(Exception):  # Spark may be gone
            undo.close()
        cause = error.__cause__ if isinstance(error, SquallError) else error
        if cause is None or not is_of_spark(cause):
            raise
        otherwise = error if isinstance(error, SquallError) else None
        raise spark_error(
            cause, "the output of Spark's driver", plan, otherwise=otherwise
        ) from cause
    return Result(plan, frames, outputs)


def _inputs(inputs: Mapping[str, Any]) -> tuple[dict[StreamName, Any], list[Source]]:
    given: dict[StreamName, Any] = {}
    sources = []
    for name, value in inputs.items():
        stream = parse_stream(name)
        if isinstance(value, str | Path):
            sources.append(absolute_source(parse_input(f"{name}={value}")))
        else:
            given[stream] = value
            sources.append(Source(stream, "(a DataFrame)", Format.FRAME))
    return given, sources


def _targets(
    topology: Topology, outputs: Sequence[str] | Mapping[str, str] | str | None
) -> list[Target]:
    from squall_spark.plan import leaves

    if isinstance(outputs, Mapping):
        return _places(outputs, "--output")
    if outputs is None:
        streams = leaves(topology)
    else:
        names = [outputs] if isinstance(outputs, str) else outputs
        streams = [parse_stream(each) for each in names]
    return [Target(stream, f"(DataFrame {stream})", Format.FRAME) for stream in streams]


def _places(places: Mapping[str, str], option: str) -> list[Target]:
    return [
        absolute_target(parse_output(f"{name}={place}", option)) for name, place in places.items()
    ]


def _frame(session: SparkSession, plan: SparkPlan, stream: StreamName, value: Any) -> DataFrame:
    """A spout's fields of a DataFrame of the user's."""
    from pyspark.sql import DataFrame

    from squall_spark.data.datasets import select_fields

    if not isinstance(value, DataFrame):
        try:
            value = session.createDataFrame(value)
        except Exception as error:
            raise SquallError(
                f"inputs[{str(stream)!r}]: a {type(value).__name__} does not become a DataFrame: "
                f"{' '.join(str(error).split())[:300]}",
                hint="give a Spark or pandas DataFrame, a pyarrow Table, or a path",
            ) from error
    fields = plan.topology.components[stream.component].streams[stream.stream].fields
    source = next(s for s in plan.stage(stream.component).sources if s.stream == stream)
    return select_fields(value, source, fields)


# ---- the session ----


def _active_session(name: str) -> SparkSession:
    from squall_spark.session import check_requirements, spark_session

    check_requirements()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="squall-spark-"))
    session = stack.enter_context(
        spark_session(name, master=_MASTER, log_file=Path(folder, "spark.log"))
    )
    atexit.register(stack.close)
    return session


def _code(plan: SparkPlan, session: SparkSession) -> Code:
    """The user's code: from where it is on this machine, and `__main__` by value."""
    local = (session.sparkContext.master or "").startswith("local")
    return Code(search=tuple(sys.path) if local else (), main=_of_main(plan.topology))


def _of_main(topology: Topology) -> dict[str, Any]:
    """The classes of a notebook that its components need. Raises PackageError for one that cannot
    travel."""
    needed = {
        component.object.class_path.partition(":")[2]
        for component in topology.components.values()
        if isinstance(component.object, PythonObject)
        and component.object.class_path.startswith("__main__:")
    }
    if not needed:
        return {}
    from pyspark import cloudpickle

    found = {}
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if not isinstance(value, type) or value.__module__ != "__main__":
            continue
        try:
            cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        except Exception as error:
            if name in needed:
                raise PackageError(
                    f"class {name!r} cannot travel to Spark's workers: {error}",
                    hint="it uses something of the notebook that belongs to this process (a "
                    "session, a connection, a lock): make that in prepare()",
                ) from error
            continue
        found[name] = value
    return found


def _without_sinks(plan: SparkPlan) -> Topology:
    from dataclasses import replace

    own = {stage.component for stage in plan.stages}
    components = {id_: c for id_, c in plan.topology.components.items() if id_ in own}
    return replace(plan.topology, components=components)
