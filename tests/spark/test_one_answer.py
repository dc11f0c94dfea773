"""One topology, one answer: on a cluster, in local mode, on Spark as a batch and as a stream."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.support import spark_topologies as st
from tests.support.devcluster import DevCluster
from tests.support.spark_plans import run_here

from squall import LocalCluster, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import Topology
from squall_spark.batch import run_batch
from squall_spark.data.bindings import parse_input, parse_output
from squall_spark.plan import SparkPlan, make_plan
from squall_spark.stream.query import run_stream
from squall_spark.traits import traits_of

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "history"
WORDS = ["storm", "spark", "squall", "rain", "wind", "cloud", "sun"]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """An example: its module, what it reads, which component's stream is the answer, and how many
    of a row's first values are its key, of which the last row counts (0: every row counts)."""

    module: str
    spouts: tuple[str, ...]
    answer: str
    key: int = 0


CASES = [
    Case("words", ("records",), "count"),
    Case("stream_words", ("records",), "count"),
    Case("top_words", ("records",), "rank", key=2),
    Case("join", ("orders", "customers"), "join"),
]


@pytest.fixture(params=CASES, ids=lambda case: case.module)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def _example_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    for name in ("source", "words", "stream_words", "top_words", "join"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module", autouse=True)
def _example_on_executors(spark: Any) -> None:
    for path in sorted(EXAMPLE.glob("*.py")):
        spark.sparkContext.addPyFile(str(path))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Patterns of input files by spout."""
    folder = tmp_path_factory.mktemp("data")
    chooser = random.Random(5)
    records = [
        {"time": chooser.randrange(300), "text": " ".join(chooser.choices(WORDS, k=6))}
        for _ in range(150)
    ]
    orders = [{"order": n, "customer": f"c{chooser.randrange(20)}"} for n in range(200)]
    customers = [{"customer": f"c{n}", "name": f"Customer {n}"} for n in range(15)]
    sets = {"records": records, "orders": orders, "customers": customers}
    for name, rows in sets.items():
        (folder / name).mkdir()
        for part in range(3):
            lines = "".join(json.dumps(row) + "\n" for row in rows[part::3])
            (folder / name / f"{part}.jsonl").write_text(lines)
    return {name: f"{folder}/{name}/*.jsonl" for name in sets}


def build(case: Case, data: dict[str, str], folder: Path | None) -> Topology:
    module = importlib.import_module(case.module)
    patterns = [data[spout] for spout in case.spouts]
    topology: Topology = module.build(*patterns, folder and str(folder))
    return topology


def plan(case: Case, data: dict[str, str], out: Path, *, streaming: bool = False) -> SparkPlan:
    topology = build(case, data, None)
    return make_plan(
        case.module,
        topology,
        normalize_topology_conf({}, default_conf(), name=case.module),
        traits_of(topology),
        [parse_input(f"{spout}={data[spout]}") for spout in case.spouts],
        [parse_output(f"{case.answer}={out}")],
        streaming=streaming,
    )


def answer(case: Case, rows: list[Row]) -> Counter[Row]:
    """What counts of an output, in any order."""
    if not case.key:
        return Counter(rows)
    return Counter({row[: case.key]: row for row in rows}.values())


def written_lines(folder: Path) -> list[Row]:
    """What stands there while it is being written: whole lines."""
    return [
        tuple(json.loads(line).values())
        for file in sorted(folder.glob("*.jsonl"))
        for line in file.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def written_parquet(folder: Path) -> list[Row]:
    return [tuple(row.values()) for row in pq.read_table(folder, partitioning=None).to_pylist()]


def in_batches(folder: Path) -> list[Row]:
    """The rows of a stream's output, batch by batch."""
    parts = sorted(folder.glob("batch=*"), key=lambda path: int(path.name.partition("=")[2]))
    return [row for part in parts for row in written_parquet(part)]


def expected(case: Case, data: dict[str, str]) -> Counter[Row]:
    """Worked out without any engine."""
    read = {
        spout: [json.loads(line) for path in sorted(Path(data[spout]).parent.iterdir())
                for line in path.read_text().splitlines()]
        for spout in case.spouts
    }  # fmt: skip
    if case.module in ("words", "stream_words"):
        words = Counter(w for r in read["records"] for w in r["text"].split())
        return Counter((word, n) for word, most in words.items() for n in range(1, most + 1))
    if case.module == "join":
        names = {c["customer"]: c["name"] for c in read["customers"]}
        return Counter(
            (o["order"], o["customer"], names[o["customer"]])
            for o in read["orders"]
            if o["customer"] in names
        )
    windows: dict[int, Counter[str]] = {}
    for record in read["records"]:
        newest = record["time"] // 20 * 20
        for window in (newest, newest - 20, newest - 40):
            windows.setdefault(window, Counter()).update(record["text"].split())
    return Counter(
        (window, rank, word, count)
        for window, counts in windows.items()
        for rank, (word, count) in enumerate(
            sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:3], start=1
        )
    )


def test_in_local_mode(case: Case, data: dict[str, str], tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("example", {}, build(case, data, tmp_path))
        wanted = expected(case, data)
        cluster.wait_until(lambda: answer(case, written_lines(tmp_path)) == wanted, 60)


def test_on_spark(spark: Any, case: Case, data: dict[str, str], tmp_path: Path) -> None:
    run_batch(spark, plan(case, data, tmp_path / "out"), None)
    assert answer(case, written_parquet(tmp_path / "out")) == expected(case, data)


def test_on_a_stream_on_spark(spark: Any, case: Case, data: dict[str, str], tmp_path: Path) -> None:
    """The files arrive in two portions, and the query is started anew for each."""
    arriving = {spout: tmp_path / spout for spout in case.spouts}
    streams = {spout: str(folder) for spout, folder in arriving.items()}
    for parts in ((0,), (1, 2)):
        for spout, folder in arriving.items():
            folder.mkdir(exist_ok=True)
            for part in parts:
                source = Path(data[spout]).with_name(f"{part}.jsonl")
                (folder / source.name).write_bytes(source.read_bytes())
        stream = plan(case, streams, tmp_path / "out", streaming=True)
        run_stream(spark, stream, None, checkpoint=str(tmp_path / "cp"), available_now=True)
    assert answer(case, in_batches(tmp_path / "out")) == expected(case, data)
    assert len(list((tmp_path / "out").glob("batch=*"))) == 2


def test_on_a_cluster(data: dict[str, str], tmp_path: Path) -> None:
    with DevCluster.start(tmp_path / "cluster", slots=2 * len(CASES)) as cluster:
        for case in CASES:
            out = tmp_path / case.module
            out.mkdir()
            more = ["--customers", data["customers"]] if case.module == "join" else []
            records = data[case.spouts[0]]
            cluster.storm(
                "jar", str(EXAMPLE), case.module, "--records", records, "--folder", str(out),
                "--workers", "2", *more,
            )  # fmt: skip
        for case in CASES:
            wanted = expected(case, data)
            out = tmp_path / case.module
            wait_until(lambda c=case, o=out, w=wanted: answer(c, written_lines(o)) == w)


# ---- Generated topologies ----

GROUPINGS = ["shuffle", "fields", "all", "global_", "local_or_shuffle", "partial_key"]
Shape = list[tuple[str, int, int]]  # for each bolt: grouping, parallelism, which source


def generated(shape: Shape) -> TopologyBuilder:
    """A bounded spout, and bolts that each read the spout or a bolt before them; the last bolts
    count what every bolt emits."""
    builder = TopologyBuilder()
    builder.spout("s", st.Numbers(30), parallelism=2)
    names = ["s"]
    for i, (grouping, parallelism, source) in enumerate(shape):
        bolt = builder.bolt(f"b{i}", st.PlusOne(), parallelism=parallelism)
        keys = ["number"] if grouping in ("fields", "partial_key") else []
        getattr(bolt, grouping)(names[source % len(names)], *keys)
        names.append(bolt.id)
    return builder


SHAPES = some.lists(
    some.tuples(some.sampled_from(GROUPINGS), some.integers(1, 3), some.integers(0, 3)),
    min_size=1,
    max_size=4,
)


def emitted_locally(builder: TopologyBuilder) -> dict[str, Counter[Row]]:
    """What each bolt emits, on the engine of a worker in this process."""
    recorder = builder.bolt("rec", st.Records())
    for declarer in list(builder._declarers):
        if declarer.id.startswith("b"):
            recorder.global_(declarer)
    st.RECORDED.clear()
    with LocalCluster() as cluster:
        cluster.submit_topology("generated", {}, builder.build())
        cluster.wait_drained("generated")
    found: dict[str, Counter[Row]] = {}
    for component, values in st.RECORDED:
        found.setdefault(component, Counter())[values] += 1
    return found


def planned(builder: TopologyBuilder, outputs: list[str]) -> SparkPlan:
    topology = builder.build()
    conf = normalize_topology_conf({}, default_conf(), name="generated")
    targets = [parse_output(text) for text in outputs]
    return make_plan("generated", topology, conf, traits_of(topology), [], targets)


@settings(max_examples=40)
@given(SHAPES)
def test_generated_topologies_emit_the_same_as_the_local_engine(shape: Shape) -> None:
    """The stages without Spark around them: many shapes."""
    builder = generated(shape)
    outputs = [f"b{i}=/out/b{i}" for i in range(len(shape))]
    found = run_here(planned(builder, outputs))
    here = {name: Counter(map(tuple, rows)) for name, rows in found.items() if rows}
    assert here == emitted_locally(generated(shape))


@settings(max_examples=4, database=None)
@given(SHAPES)
def test_generated_topologies_emit_the_same_on_spark(
    spark: Any, tmp_path_factory: pytest.TempPathFactory, shape: Shape
) -> None:
    """The same through a real Spark: a few, since each takes seconds."""
    folder = tmp_path_factory.mktemp("generated")
    outputs = [f"b{i}={folder}/b{i}" for i in range(len(shape))]
    run_batch(spark, planned(generated(shape), outputs), None)
    found = {f"b{i}": Counter(written_parquet(folder / f"b{i}")) for i in range(len(shape))}
    assert {n: rows for n, rows in found.items() if rows} == emitted_locally(generated(shape))


def wait_until(condition: Callable[[], bool], timeout_secs: float = 60.0) -> None:
    import time

    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.1)
