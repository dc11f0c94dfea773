"""The whole protocol, spoken with children that use squall.multilang."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import wait_dead
from tests.support.shells import ACCOUNTS, Account, Sink, raw_bolt, running

from squall import ShellBolt, ShellSpout, Stream, TaskHook

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _unbuffered_as_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    api = Path(__file__).resolve().parents[3] / "api"
    path = os.pathsep.join(filter(None, [str(api), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)


def test_a_spout_gets_every_call_with_its_own_ids() -> None:
    spout = ShellSpout(sys.executable, "protocol_spout.py", outputs=["what", "value"])
    with running(None, spout=spout) as run:
        seen = run.account.seen
        ids = ["0", "1", "'0'", "'text'", "2.5", "12345678901234567890"]
        run.wait(lambda: all(seen["told", f"ack {i}"] == 1 for i in ids))
        assert all(seen["message", i] == 1 for i in [*ids, "None"])
        assert seen["told", "initialize"] == 1
        assert seen["told", "activate"] == 1
        run.cluster.deactivate("shells")
        run.wait(lambda: seen["told", "deactivate"] == 1)
        run.cluster.activate("shells")
        run.wait(lambda: seen["told", "activate"] == 2)
        assert not [what for what in seen if what[1].startswith("fail")]
        assert not run.errors()


def test_a_spout_is_notified_of_a_failure_and_emits_again(tmp_path: Path) -> None:
    """The bolt's child dies once and with it what it held."""
    spout = ShellSpout(sys.executable, "protocol_spout.py", outputs=["what", "value"])
    with running(raw_two(tmp_path), spout=spout) as run:
        seen = run.account.seen
        run.wait(lambda: any(what[1].startswith("fail") for what in seen))
        run.wait(lambda: run.cluster.totals("shells")["numbers"]["acked"] == 6)
        (error,) = run.errors()
        assert "exited with status 3" in error


def raw_two(tmp_path: Path) -> ShellBolt:
    bolt = raw_bolt("once-exit", tmp_path, after=4)
    return ShellBolt(
        bolt.command, bolt.script, outputs=["what", "value"], environment=bolt.environment
    )


def test_a_spouts_child_that_dies_starts_again_from_the_beginning(tmp_path: Path) -> None:
    """Its ids count from 0 again: no ack of the old child's may reach the new one."""
    spout = ShellSpout(sys.executable, "protocol_spout.py", outputs=["what", "value"])
    with running(None, spout=spout, conf={"topology.max.spout.pending": 1}) as run:
        run.wait(lambda: run.account.seen["told", "ack 1"] == 1)
        (pid,) = run.child_pids("numbers")
        os.kill(pid, 9)
        run.wait(lambda: run.account.seen["told", "ack 12345678901234567890"] >= 1)
        run.wait(lambda: run.account.seen["told", "activate"] == 2)
        assert run.account.seen["told", "ack 0"] <= 2
        (error,) = run.errors()
        assert "was ended by SIGKILL" in error
        wait_dead(pid)


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[Any]:
    bolt = ShellBolt(
        sys.executable,
        "protocol_bolt.py",
        outputs={
            "default": ["what", "value"],
            "chosen": Stream(["x"], direct=True),
            "unheard": ["y"],
        },
        environment={"MINE": "yes"},
    )
    chosen = f"chosen-{len(ACCOUNTS)}"
    ACCOUNTS[chosen] = Account()

    def direct(builder: Any) -> None:
        builder.bolt("zz-chosen", Sink(chosen), parallelism=2).direct("shell", stream="chosen")

    conf = {"topology.tick.tuple.freq.secs": 1}
    with running(bolt, count=8, bolt_conf=conf, more=[direct]) as run:
        yield run, ACCOUNTS[chosen]


def values(run: Any, what: str) -> list[Any]:
    return [key[1] for key in list(run.account.seen) if key[0] == what]


def test_a_bolt_uses_all_of_the_protocol(everything: Any, caplog: pytest.LogCaptureFixture) -> None:
    run, _ = everything
    with caplog.at_level(logging.DEBUG):
        run.wait(lambda: len(run.account.acked) == 7 and run.account.failed[7] >= 1)
    engine = run.cluster._topologies._running["shells"].engine
    (bolt,) = [b for b in engine._flow.bolts if b.component == "shell"]
    own = f"topology.shell.{bolt.task}"
    said = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == own]
    assert said[:5] == [
        ("DEBUG", "at trace"),
        ("DEBUG", "at debug"),
        ("INFO", "at info"),
        ("WARNING", "at warn"),
        ("ERROR", "at error"),
    ]

    def on_stderr(line: str) -> bool:
        return any("shell_stderr" in (said := r.getMessage()) and line in said
                   for r in list(caplog.records))  # fmt: skip

    # It comes by another way than what the child says of its tuples.
    run.wait(lambda: on_stderr('line="on stderr"'))
    run.wait(lambda: on_stderr("line=printed"))  # print goes to stderr

    (built,) = [b for b in engine.built if b.task is bolt]
    requests = built.context.shell_metrics["requests"]
    assert (requests.last, requests.total, requests.updates) == (4, 7, 2)
    assert built.context.shell_metrics["status"].last == {"up": True}

    assert any("its own error" in error for error in run.errors())
    assert run.account.seen["joined", 2] == 1
    assert run.account.seen["bare", 1] == 1
    assert run.account.acked[3] == run.account.acked[4] == 1


def test_task_ids_and_direct_emits(everything: Any) -> None:
    run, chosen = everything
    run.wait(lambda: run.account.acked[5] == 1)
    ((at_start, default, direct, nobody),) = values(run, "answers")
    engine = run.cluster._topologies._running["shells"].engine
    (sink,) = engine.plan.tasks_of["sink"]
    assert at_start == default == (sink,)
    assert direct == (engine.plan.tasks_of["zz-chosen"][0],)
    assert nobody == ()
    assert sum(chosen.seen.values()) == 1


def test_where_and_how_a_child_runs(everything: Any) -> None:
    run, _ = everything
    run.wait(lambda: run.account.acked[6] == 1)
    assert values(run, "cwd") == ["resources"]
    assert values(run, "mine") == ["yes"]
    assert values(run, "unbuffered") == [None]
    assert values(run, "conf") == ["shells"]
    assert values(run, "pid file") == [True]


def test_ticks_reach_the_child(everything: Any) -> None:
    run, _ = everything
    run.wait(lambda: bool(values(run, "tick")))


def test_nothing_is_left_of_a_child_after_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log has the pid that each child has reported."""
    caplog.set_level(logging.INFO)
    with running(raw_bolt("well", tmp_path), parallelism=3) as run:
        run.wait_all_acked()
        pids = run.child_pids()
        pid_dir = (
            run.cluster._topologies._running["shells"].engine._flow.bolts[0].shell.setting.pid_dir
        )
        assert len(pids) == 3
        assert {int(f.name) for f in pid_dir.iterdir()} >= set(pids)
        ready = [r.getMessage() for r in caplog.records if "shell_child_ready" in r.getMessage()]
        assert sorted(int(line.rpartition("pid=")[2]) for line in ready) == sorted(pids)
    wait_dead(*pids)
    assert not {int(f.name) for f in pid_dir.iterdir()} & set(pids)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.sh"
    script.write_text("trap '' TERM\nsleep 600\n")
    with running(ShellBolt("/bin/sh", str(script), outputs=["n"])) as run:
        (pid,) = run.child_pids()
    wait_dead(pid)


def test_output_of_a_child_about_its_exit_is_not_an_error(tmp_path: Path) -> None:
    script = tmp_path / "complains.py"
    script.write_text(
        "import signal\n"
        "from squall.multilang import Bolt\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "class Complains(Bolt):\n"
        "    def process(self, tup):\n"
        "        self.ack(tup)\n"
        "bolt = Complains()\n"
        "bolt.run()\n"
        "bolt.report_error('read EOF')\n"
        "bolt._out.write(b'no json\\nend\\n')\n"
        "bolt._out.flush()\n"
    )
    with running(ShellBolt(sys.executable, str(script), outputs=["n"])) as run:
        run.wait_all_acked()
        errors = run.raw_errors()
        reported = run.cluster._topologies._running["shells"].errors
    assert errors == []
    assert reported == []


def test_messages_of_components_that_never_ack_time_out(tmp_path: Path) -> None:
    script = tmp_path / "silent.py"
    script.write_text(
        "from squall.multilang import Bolt\n"
        "class Silent(Bolt):\n"
        "    def process(self, tup):\n"
        "        self.emit([tup['n']])\n"
        "Silent().run()\n"
    )
    bolt = ShellBolt(sys.executable, str(script), outputs=["n"])
    with running(bolt, count=5, conf={"topology.message.timeout.secs": 1}) as run:
        run.wait(lambda: len(run.account.failed) == 5)
        assert len(run.account.seen) == 5
        assert not run.errors()


HOOKED: list[Any] = []


class Watching(TaskHook):
    def bolt_execute(self, info: Any) -> None:
        HOOKED.append(("execute", info.tuple[0]))

    def bolt_ack(self, info: Any) -> None:
        assert info.process_latency_ms > 0
        HOOKED.append(("ack", info.tuple[0]))

    def emit(self, info: Any) -> None:
        HOOKED.append(("emit", *info.values, len(info.out_tasks)))

    def spout_ack(self, info: Any) -> None:
        HOOKED.append(("spout_ack", info.message_id))


def test_task_hooks_see_what_the_children_do(tmp_path: Path) -> None:
    HOOKED.clear()
    conf = {"topology.auto.task.hooks": [f"{__name__}:Watching"]}
    with running(raw_bolt("well", tmp_path), count=5, bolt_conf=conf) as run:
        run.wait_all_acked()
        assert not run.errors()
    for event in (("execute",), ("ack",)):
        assert sorted(what for what in HOOKED if what[:1] == event) == [
            (*event, n) for n in range(5)
        ]
    assert sorted(what for what in HOOKED if what[0] == "emit") == [
        ("emit", n, 1) for n in range(5)
    ]
    HOOKED.clear()
    spout = ShellSpout(sys.executable, "protocol_spout.py", outputs=["what", "value"])
    with running(None, spout=spout, conf=conf) as run:
        run.wait(lambda: ("spout_ack", "text") in HOOKED)
        # The last of them may be emitted after that ack.
        run.wait(lambda: sum(what[:2] == ("emit", "message") for what in HOOKED) >= 6)
        assert not run.errors()
