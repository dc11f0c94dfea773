"""Throughput through one shell bolt, against a bare driver of pipes with the same child.

    python bench/multilang.py [--secs 5] [--rounds 3] [--pystorm PYTHON]

Prints JSON. The topology is a spout of sentences (in the worker, with message ids), the shell
splitter, and a counting bolt: every word is anchored and acked. The bare driver writes tuples and
answers emits with as little as that takes, and does nothing with the words; with it the child is
alone what costs. Rounds alternate, so that both see the same machine; each pair gives one ratio.

Wall time depends on where the kernel puts the two processes: the same bare driver with the same
child that asks makes 17,000 words a second in one run and 80,000 in the next. CPU time does not, so
it is reported, too: microseconds a word, of the driver or the worker (`own`) and of the child.

Apache Storm 2.8.8 with its own Python splitter, measured on two cores: 1,900 sentences/s and
15,000 words/s (shared facts of the project).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import psutil

from squall import Bolt, LocalCluster, ShellBolt, Spout, TopologyBuilder

HERE = Path(__file__).resolve().parent
CHILDREN = HERE / "multilang_children"
SENTENCE = "the cow jumped over the moon and then"  # eight words, as in Storm's example
STORM = {"sentences": 1_900, "words": 15_000}


class Sentences(Spout):
    outputs = ["sentence"]  # noqa: RUF012

    def open(self, conf, context):
        self.n = 0

    def next_tuple(self):
        self.n += 1
        self.emit([SENTENCE], message_id=self.n)


class Count(Bolt):
    outputs = []  # noqa: RUF012

    def prepare(self, conf, context):
        self.counts = {}

    def execute(self, tup):
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1


def environment() -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    api = str(HERE.parent / "api")
    env["PYTHONPATH"] = os.pathsep.join([api, *filter(None, [env.get("PYTHONPATH")])])
    return env


class Cpu:
    """CPU seconds since it was made: of this process, and of its one child."""

    def __init__(self, child: int) -> None:
        self._child = child
        self._start = self._now()

    def _now(self) -> tuple[float, float]:
        fields = Path(f"/proc/{self._child}/stat").read_text().rpartition(")")[2].split()
        return time.process_time(), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def micros(self, words: float) -> dict[str, float]:
        """Microseconds a word."""
        names = ("own", "child")
        pairs = zip(names, self._start, self._now(), strict=True)
        return {name: 1e6 * (now - start) / words for name, start, now in pairs}


def bare(argv: list[str], secs: float) -> dict[str, Any]:
    """Drive the child as fast as pipes go."""
    with tempfile.TemporaryDirectory() as pid_dir:
        child = subprocess.Popen(
            argv,
            cwd=CHILDREN,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        out, back = child.stdin.fileno(), child.stdout.fileno()
        os.set_blocking(out, False)
        context = {"task->component": {"1": "split"}, "taskid": 1, "componentid": "split"}
        pending = orjson.dumps({"conf": {}, "pidDir": pid_dir, "context": context}) + b"\nend\n"
        given = acked = words = 0
        rest = b""
        start = counted_from = None
        try:
            while start is None or time.perf_counter() - start < secs:
                if counted_from is not None:
                    while given - acked < 500 and len(pending) < 32_768:
                        given += 1
                        pending += (
                            b'{"id":"%d","comp":"s","stream":"default","task":2,"tuple":["%b"]}'
                            b"\nend\n" % (given, SENTENCE.encode())
                        )
                if pending:
                    try:
                        pending = pending[os.write(out, pending) :]
                    except BlockingIOError:
                        select.select([back], [], [])
                data = rest + os.read(back, 65_536)
                *messages, rest = data.split(b"\nend\n")
                answers = b""
                for message in messages:
                    command = orjson.loads(message)
                    name = command.get("command")
                    if name == "emit":
                        words += 1
                        if command.get("need_task_ids") is not False:
                            answers += b"[3]\nend\n"
                    elif name == "ack":
                        acked += 1
                        if acked == 500:  # warm
                            start, first_words, first_acked = time.perf_counter(), words, acked
                            cpu = Cpu(child.pid)
                    elif "pid" in command:
                        counted_from = True
                pending = answers + pending if answers and not _torn(pending) else pending + answers
            took = time.perf_counter() - start
            return {
                "sentences": (acked - first_acked) / took,
                "words": (words - first_words) / took,
                "cpu": cpu.micros(words - first_words),
            }
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            child.stdout.close()


def _torn(pending: bytes) -> bool:
    """Whether a part of the first message was written already."""
    return bool(pending) and not pending.startswith(b'{"id"')


def squall(argv: list[str], secs: float) -> dict[str, Any]:
    """The same child in a topology."""
    os.environ.update(environment())
    os.environ.pop("PYTHONUNBUFFERED", None)
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences())
    builder.bolt("split", ShellBolt(argv[0], str(argv[1]), outputs=["word"])).shuffle("sentences")
    builder.bolt("count", Count()).fields("split", "word")
    conf = {
        "topology.max.spout.pending": 500,
        "topology.testing.always.try.serialize": False,
    }
    with LocalCluster() as cluster:
        cluster.submit_topology("bench", conf, builder.build())
        cluster.wait_until(lambda: cluster.totals("bench")["split"]["acked"] >= 500)
        (child,) = psutil.Process().children()
        cpu = Cpu(child.pid)
        first, start = cluster.totals("bench"), time.perf_counter()
        time.sleep(secs)
        last, took = cluster.totals("bench"), time.perf_counter() - start
        words = last["count"]["executed"] - first["count"]["executed"]
        micros = cpu.micros(words)
        cluster.kill_topology("bench", 0)
        errors = cluster.errors("bench") if "bench" in cluster.names() else []
    assert not errors, errors
    return {
        "sentences": (last["split"]["acked"] - first["split"]["acked"]) / took,
        "words": words / took,
        "cpu": micros,
    }


def measure(script: str, python: str, secs: float, rounds: int) -> dict[str, object]:
    argv = [python, str(CHILDREN / script)]
    found: dict[str, list[dict[str, Any]]] = {"bare": [], "squall": []}
    for n in range(rounds):
        pair = [("bare", bare), ("squall", squall)]
        for who, run in pair if n % 2 else pair[::-1]:
            found[who].append(run(argv, secs))
    words = {who: [run["words"] for run in runs] for who, runs in found.items()}
    medians = {who: statistics.median(values) for who, values in words.items()}
    ratios = [ours / theirs for ours, theirs in zip(words["squall"], words["bare"], strict=True)]
    return {
        "child": script,
        "words_per_sec": {who: round(value) for who, value in medians.items()},
        "words_per_sec_all": {who: [round(v) for v in values] for who, values in words.items()},
        "cpu_micros_a_word": {
            who: {
                whose: round(statistics.median(run["cpu"][whose] for run in runs), 1)
                for whose in ("own", "child")
            }
            for who, runs in found.items()
        },
        "of_bare_by_pair": [round(ratio, 2) for ratio in ratios],
        "of_bare": round(statistics.median(ratios), 2),
        "of_bare_by_medians": round(medians["squall"] / medians["bare"], 2),
        "of_storm_2_8_8": round(medians["squall"] / STORM["words"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--secs", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pystorm", help="a Python that has pystorm")
    parser.add_argument("--only", help="one child's script")
    parser.add_argument("--script", help="a splitter of your own, such as Storm's, alone")
    options = parser.parse_args()
    children = [("split_asks.py", sys.executable), ("split_tells.py", sys.executable)]
    if options.pystorm:
        children.append(("split_pystorm.py", options.pystorm))
    if options.script:
        children = [(str(Path(options.script).resolve()), sys.executable)]
    results = [
        measure(script, python, options.secs, options.rounds)
        for script, python in children
        if options.only in (None, script)
    ]
    print(json.dumps({"cores": os.cpu_count(), "results": results}, indent=2))


if __name__ == "__main__":
    sys.modules["multilang"] = sys.modules["__main__"]  # where workers would import it from
    main()
