"""A plan as text, for `storm spark run --explain`: nothing runs, and no JVM starts.

inputs
  records      json:/data/in (12 files, 3.1 MB)
               reads time bigint, text string; not read: host
stages
  1  records (one task for each part of the data), split (2 tasks)
  2  count (4 tasks)
       split -> count moves: fields: word
outputs
  count        parquet:/out/count: word string, count bigint
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from squall_common.client.upload import size_text
from squall_common.topology.model import GroupingKind
from squall_spark.data.bindings import Format, Source, shown_place
from squall_spark.data.look import Files, columns_in, files_of
from squall_spark.plan import Sink, SparkPlan, Stage, StageKind
from squall_spark.traits import Column
from squall_spark.view.pruning import folders_of, remaining

_INDENT = "               "
_ONE_FILE_MAX = 512 * 1024 * 1024


def explain(plan: SparkPlan, master: str, *, streaming: bool = False) -> str:
    """The plan as lines. Looks at the inputs that are on this machine."""
    kind = "in micro-batches" if streaming else "as a batch job"
    lines = [f"topology {plan.name!r} {kind} on Spark at {master}", "", "inputs"]
    for stage in plan.stages:
        for source in stage.sources:
            fields = plan.topology.components[stage.component].streams[source.stream.stream].fields
            lines += _input(source, fields, plan.columns_of(source.stream))
        if stage.kind is StageKind.BOUNDED:
            lines.append(f"  {stage.component:<12} runs itself, to its end")
    lines += ["", "stages"]
    for number, group in enumerate(groups(plan), start=1):
        lines += _group(plan, number, group)
    lines += ["", "outputs"]
    lines += [line for sink in plan.sinks for line in _output(sink, streaming=streaming)]
    lines += [
        f"  {stage.component:<12} runs for what it does itself"
        for stage in plan.stages
        if not stage.readers
    ]
    return "\n".join(lines) + "\n"


def groups(plan: SparkPlan) -> list[list[Stage]]:
    """The components that one stage of Spark's runs, one after the other, in the same partition:
    nothing moves between them."""
    found: list[list[Stage]] = []
    for stage in plan.stages:
        here = None
        if stage.inputs and not stage.moves:
            (source,) = stage.inputs
            here = next(group for group in found if any(s.component == source for s in group))
        if here is None:
            found.append([stage])
        else:
            here.append(stage)
    return found


def _input(source: Source, fields: Sequence[str], columns: Sequence[Column]) -> Iterator[str]:
    files = files_of(source)
    size = ""
    if files is not None:
        what = "file" if files.count == 1 else "files"
        size = f" ({files.count} {what}, {size_text(files.size)})"
    yield f"  {source.stream!s:<12} {_place(source.path, source.format)}{size}"
    there = None
    if files is not None and files.first is not None:
        try:
            there = columns_in(files.first, source.format)
        except (OSError, ValueError) as error:
            yield f"{_INDENT}{files.first} cannot be read: {error}"
    types = dict(there or ())
    declared = dict(zip(fields, columns, strict=False))
    shown = []
    for name in fields:
        column = declared.get(name)
        type_ = types.get(name) if column is None else column.type
        shown.append(f"{name} {type_}" if type_ else name)
    line = f"{_INDENT}reads {', '.join(shown)}"
    unread = [name for name in types if name not in fields]
    if unread:
        line += f"; not read: {', '.join(unread)}"
    yield line
    if source.filter is not None:
        yield f"{_INDENT}only where {source.filter}{_left(files, source.filter)}"
    missing = [name for name in fields if there is not None and name not in types]
    if missing:
        yield f"{_INDENT}missing in {files.first if files else '?'}: {', '.join(missing)}"
    if not columns and source.format in (Format.JSON, Format.CSV):
        yield f"{_INDENT}types are found by reading it once more; the spout could declare them"
    if files is not None and files.first is not None and _is_whole(files.first, source):
        yield f"{_INDENT}a compressed file is read by one task"


def _left(files: Files | None, condition: str) -> str:
    """How many files a filter on the columns of folders leaves."""
    if files is None or not any(map(folders_of, files.names[:1])):
        return ""
    left = len(remaining(files.names, condition))
    return f": at most {left} of the {files.count} files"


def _is_whole(file: str, source: Source) -> bool:
    return source.format in (Format.JSON, Format.CSV, Format.TEXT) and file.endswith(
        (".gz", ".zst", ".snappy", ".lz4")
    )


def _group(plan: SparkPlan, number: int, group: Iterable[Stage]) -> Iterator[str]:
    described, notes = [], []
    for stage in group:
        tasks = f"{len(stage.tasks)} task{'' if len(stage.tasks) == 1 else 's'}"
        if stage.kind is StageKind.DATA:
            tasks = "a task for each part of the data"
        traits = [tasks]
        traits += ["windows"] if stage.windowed else ["stateful"] if stage.stateful else []
        traits += ["by time"] if stage.by_time else []
        described.append(f"{stage.component} ({', '.join(traits)})")
        if stage.moves:
            notes += list(_moves(plan, stage))
        if stage.readers > 1:
            notes.append(f"{stage.component} is kept on disk: it is read {stage.readers} times")
    yield f"  {number}  {', '.join(described)}"
    yield from (f"       {note}" for note in notes)


def _moves(plan: SparkPlan, stage: Stage) -> Iterator[str]:
    for source, grouping in plan.topology.components[stage.component].inputs.items():
        stream = "" if source.stream == "default" else f":{source.stream}"
        copies = ""
        if grouping.kind is GroupingKind.ALL and len(stage.tasks) > 1:
            copies = f" (each tuple to {len(stage.tasks)} tasks)"
        yield f"{source.component}{stream} -> {stage.component} moves: {grouping}{copies}"


def _output(sink: Sink, *, streaming: bool) -> Iterator[str]:
    if sink.columns:
        shown = ", ".join(
            f"{name} {column.type}" for name, column in zip(sink.fields, sink.columns, strict=True)
        )
    else:
        shown = f"{', '.join(sink.fields)} (types are found in a pass of their own)"
    if sink.partition_by:
        shown += f"; a folder for each {', '.join(sink.partition_by)}"
    if sink.key:
        shown += f"; the newest tuple of each {', '.join(sink.key)}"
    files = sink.format in (Format.PARQUET, Format.JSON, Format.CSV)
    batches = "/batch=N" if streaming and files and not sink.key else ""
    place = _place(sink.path, sink.format)
    yield f"  {sink.stream!s:<12} {place}{batches}: {shown}"


def _place(path: str, format_: Format | None) -> str:
    if format_ is Format.FRAME:
        return "a DataFrame"
    return path if format_ is None else f"{format_.value}:{shown_place(path, format_)}"
