"""`python -m squall._entry` as `storm jar` starts it, against a Nimbus that records what it is
told.

Bad input gives one clear message and exit status 1, and nothing half done stays behind.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest
from tests.support.fake_nimbus import fake_nimbus

from squall._entry import find_entry
from squall_common.config.load import default_conf
from squall_common.errors import PackageError
from squall_common.packaging.package import build_package
from squall_common.topology.thrift import from_thrift
from squall_thrift import storm

WORDS = """
    from squall import Bolt, Spout, TopologyBuilder, submit_topology

    class Words(Spout):
        outputs = ["word"]
        def __init__(self, path):
            self.path = path
        def next_tuple(self):
            pass

    class Count(Bolt):
        def execute(self, tup):
            pass

    def build():
        builder = TopologyBuilder()
        builder.spout("words", Words(path="x"))
        builder.bolt("count", Count()).fields("words", "word")
        return builder.build()
"""
# The child runs in another folder.
PYTHONPATH = os.pathsep.join(
    os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
)
GUARDED = """
    if __name__ == "__main__":
        import sys
        submit_topology(sys.argv[1], {"topology.workers": 2, "mine": [1]}, build())
"""


@dataclass
class Result:
    status: int
    out: str
    err: str


class Runner:
    """Runs entry points of a package with the given files."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "package"
        self.out = folder / "out"
        self.temporary = folder / "tmp"
        for path in (self.source, self.out, self.temporary):
            path.mkdir()

    def write(self, name: str, *texts: str) -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(dedent(text) for text in texts), encoding="utf-8")

    def run(
        self, *argv: str, conf=None, overrides=None, archive=None, stderr=subprocess.PIPE, **env
    ) -> Result:
        """What a run did; asserts that it left no file behind."""
        archive = archive or build_package(self.source, self.out)
        environment = {
            **os.environ,
            "STORM_JAR": str(archive),
            "SQUALL_MODE": "cluster",
            "SQUALL_CLIENT_CONF": json.dumps(
                {**default_conf(), "storm.nimbus.retry.times": 0, **(conf or {})}
            ),
            "SQUALL_CLIENT_OVERRIDES": json.dumps(overrides or {}),
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": PYTHONPATH,
            **env,
        }
        done = subprocess.run(
            [sys.executable, "-P", "-m", "squall._entry", *argv],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=60,
            check=False,
            cwd=self.out,
        )
        assert list(self.temporary.iterdir()) == []
        return Result(done.returncode, done.stdout, done.stderr)

    def fail(self, *argv: str, **options) -> str:
        """The one message of a run that must fail without a traceback."""
        result = self.run(*argv, **options)
        assert result.status == 1, result
        message = re.sub(r"\A(uploading .*\n)?(submitting topology .* \.\.\.\n)?", "", result.err)
        assert message.startswith("error: "), result.err
        assert "Traceback" not in message
        return message


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


@pytest.fixture
def nimbus():
    with fake_nimbus() as fake:
        yield fake


# ---- What works ----


def test_a_topology_is_uploaded_and_submitted(runner, nimbus):
    runner.write("wc.py", WORDS, GUARDED)
    result = runner.run("wc", "counts", conf=nimbus.conf)
    assert result.status == 0, result.err
    assert [name for name, _ in nimbus.calls] == [
        "getLeader",
        "isTopologyNameAllowed",
        "getLeader",
        "beginFileUpload",
        "uploadChunk",
        "finishFileUpload",
        "submitTopologyWithOpts",
    ]
    ((name, location, conf, struct, options),) = nimbus.called("submitTopologyWithOpts")
    assert name == "counts"
    assert json.loads(conf) == {"topology.workers": 2, "mine": [1]}
    assert options.initial_status == storm.TopologyInitialStatus.ACTIVE
    assert nimbus.uploads[location] == (runner.out / "package.zip").read_bytes()
    assert nimbus.finished == {location}
    # A class of `__main__` is recorded under its module's name: the worker imports that.
    components = from_thrift(struct).components
    assert components["words"].object.class_path == "wc:Words"
    said = result.err.splitlines()
    assert re.fullmatch(r"uploading package\.zip, \d+ bytes \.\.\.", said[0])
    assert said[1:] == [
        "submitting topology 'counts' ...",
        f"submitted topology 'counts' to Nimbus at 127.0.0.1:{nimbus.port}",
    ]


def test_an_upload_goes_in_chunks_below_the_frame_size(runner, nimbus):
    runner.write("wc.py", WORDS, GUARDED)
    (runner.source / "model.bin").write_bytes(os.urandom(1_000_000))
    assert runner.run("wc", "counts", conf=nimbus.conf).status == 0
    sizes = [len(chunk) for _, chunk in nimbus.called("uploadChunk")]
    assert len(sizes) == 4
    assert max(sizes) <= 307_200
    assert min(sizes) > 0


REWINDABLE = """
    from squall import RewindableSpout, TopologyBuilder, submit_topology

    class Words(RewindableSpout):
        outputs = ["word"]
        def seek(self, positions):
            pass
        def next_tuple(self):
            pass

    def build():
        builder = TopologyBuilder()
        builder.spout("words", Words())
        return builder.build()
"""


def test_a_source_of_checkpoints_needs_them_from_the_topology_or_the_cluster(runner, nimbus):
    """Its worker would end at every start."""
    runner.write("wc.py", REWINDABLE, GUARDED)
    nimbus.answers["getNimbusConf"] = "{}"
    message = runner.fail("wc", "counts", conf=nimbus.conf)
    assert "spout 'words' (Words) is a RewindableSpout, which works with checkpoints" in message
    assert nimbus.uploads == {}
    interval = "topology.checkpoint.interval.secs"
    nimbus.answers["getNimbusConf"] = json.dumps({interval: 5})
    assert runner.run("wc", "counts", conf=nimbus.conf).status == 0
    assert "works with checkpoints" in runner.fail(
        "wc", "counts", conf=nimbus.conf, overrides={interval: None}
    )


def test_an_entry_point_that_submits_twice_uploads_once(runner, nimbus):
    again = """
    if __name__ == "__main__":
        submit_topology("one", None, build())
        submit_topology("two", {}, build(), initial_status="INACTIVE")
    """
    runner.write("wc.py", WORDS, again)
    assert runner.run("wc", conf=nimbus.conf).status == 0
    submitted = nimbus.called("submitTopologyWithOpts")
    assert [arguments[0] for arguments in submitted] == ["one", "two"]
    assert len({arguments[1] for arguments in submitted}) == 1
    assert len(nimbus.uploads) == 1
    assert submitted[1][4].initial_status == storm.TopologyInitialStatus.INACTIVE


def test_dash_c_beats_the_topologys_conf_and_only_topology_keys_travel(runner, nimbus):
    runner.write("wc.py", WORDS, GUARDED)
    overrides = {"topology.workers": 5, "nimbus.thrift.port": 1, "own": 1}
    assert runner.run("wc", "c", conf=nimbus.conf, overrides=overrides).status == 0
    conf = json.loads(nimbus.called("submitTopologyWithOpts")[0][2])
    assert conf == {"topology.workers": 5, "mine": [1], "own": 1}


@pytest.mark.parametrize("entry", ["jobs.wc", "jobs/wc.py", "jobs.wc:main", "jobs.wc:with_argv"])
def test_an_entry_point_is_a_module_a_path_or_a_function(runner, nimbus, entry):
    functions = """
    def main():
        import sys
        submit_topology(sys.argv[1], {}, build())

    def with_argv(argv):
        submit_topology(argv[0], {}, build())
    """
    runner.write("jobs/wc.py", WORDS, functions, GUARDED)
    assert runner.run(entry, "counts", conf=nimbus.conf).status == 0
    ((name, _, _, struct, _),) = nimbus.called("submitTopologyWithOpts")
    assert name == "counts"
    assert from_thrift(struct).components["count"].object.class_path == "jobs.wc:Count"


def test_a_package_with_main_runs_that(runner, nimbus):
    runner.write("app/__init__.py")
    runner.write("app/parts.py", WORDS)
    runner.write("app/__main__.py", "from app.parts import *\nsubmit_topology('x', {}, build())\n")
    assert runner.run("app", conf=nimbus.conf).status == 0
    ((_, _, _, struct, _),) = nimbus.called("submitTopologyWithOpts")
    assert from_thrift(struct).components["count"].object.class_path == "app.parts:Count"


def test_data_beside_the_module_can_be_read(runner, nimbus):
    runner.write("data.txt", "counts")
    runner.write(
        "wc.py",
        WORDS,
        """
        if __name__ == "__main__":
            from pathlib import Path
            submit_topology((Path(__file__).parent / "data.txt").read_text(), {}, build())
        """,
    )
    assert runner.run("wc", conf=nimbus.conf).status == 0
    assert nimbus.called("submitTopologyWithOpts")[0][0] == "counts"


def test_the_exit_status_is_the_entry_points_own(runner):
    runner.write("leave.py", "import sys\nsys.exit(int(sys.argv[1]))\n")
    runner.write("say.py", "raise SystemExit('not today')\n")
    runner.write("code.py2.py", "")
    assert runner.run("leave", "3").status == 3
    said = runner.run("say")
    assert (said.status, said.err) == (1, "not today\n")


def test_a_terminal_shows_the_progress_of_the_upload(runner, nimbus):
    runner.write("wc.py", WORDS, GUARDED)
    main, terminal = os.openpty()
    with os.fdopen(main, "rb", buffering=0) as shown:
        result = runner.run("wc", "counts", conf=nimbus.conf, TERM="xterm", stderr=terminal)
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while part := shown.read(4096):
                text += part
    assert result.status == 0
    assert b"uploading package" in text
    assert b"100%" in text or b"bytes" in text or b"kB" in text


def test_a_misspelled_option_is_warned_of(runner, nimbus):
    call = 'submit_topology("x", {"topology.worker": 2, "own": 1}, build())'
    runner.write("wc.py", WORDS, f'if __name__ == "__main__":\n    {call}\n')
    result = runner.run("wc", conf=nimbus.conf)
    assert result.status == 0
    assert "unknown option topology.worker (did you mean topology.workers?)" in result.err
    assert json.loads(nimbus.called("submitTopologyWithOpts")[0][2])["topology.worker"] == 2


@pytest.mark.parametrize(
    ("conf", "warns"), [({}, True), ({"topology.tick.tuple.freq.secs": 1}, False)]
)
def test_a_bolt_without_a_subscription_is_warned_of(runner, nimbus, conf, warns):
    made = 'b = TopologyBuilder(); b.spout("words", Words("x")); b.bolt("lonely", Count())'
    call = f'{made}; submit_topology("x", {conf}, b.build())'
    runner.write("wc.py", WORDS, f'if __name__ == "__main__":\n    {call}\n')
    result = runner.run("wc", conf=nimbus.conf)
    assert result.status == 0, result.err
    assert ("warning: bolt 'lonely' subscribes to nothing" in result.err) is warns


def test_a_termination_signal_leaves_no_file_behind(runner):
    runner.write("slow.py", "import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    archive = build_package(runner.source, runner.out)
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "squall._entry", "slow"],
        env={**os.environ, "STORM_JAR": str(archive), "TMPDIR": str(runner.temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        assert len(list(runner.temporary.iterdir())) == 1
        child.terminate()
        assert child.wait(30) == 128 + signal.SIGTERM
    assert list(runner.temporary.iterdir()) == []


# An entry point, with so many seconds to exit after a signal.
HURRIED = """
import sys
from squall import _entry
_entry._EXIT_SECS = int(sys.argv[1])
sys.exit(_entry.main(["slow"]))
"""


def terminate(runner: Runner, exit_secs: int = 1, **env: str) -> int:
    """Send SIGTERM to the entry point `slow` once it has printed `up`; returns its exit status.
    It has `exit_secs` to end."""
    archive = build_package(runner.source, runner.out)
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", HURRIED, str(exit_secs)],
        env={**os.environ, "STORM_JAR": str(archive), "TMPDIR": str(runner.temporary), **env},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "up\n"
            child.terminate()
            return child.wait(30)
        finally:
            child.kill()


def test_an_entry_point_that_cannot_end_after_a_signal_is_ended(runner):
    stuck = """
    import threading

    try:
        print("up", flush=True)
        threading.Event().wait()
    finally:
        while True:
            threading.Event().wait()
    """
    runner.write("slow.py", stuck)
    assert terminate(runner) == -signal.SIGALRM


def test_a_topology_in_local_mode_has_its_time_to_stop_after_a_signal(runner):
    stops = """
    import pathlib
    import time

    from squall import Bolt, Spout, TopologyBuilder, submit_topology

    class Nothing(Spout):
        outputs = ["n"]
        def next_tuple(self):
            pass

    class Slow(Bolt):
        def __init__(self, mark):
            self.mark = mark
        def prepare(self, conf, context):
            print("up", flush=True)
        def execute(self, tup):
            pass
        def cleanup(self):
            time.sleep(6)  # longer than the entry point has
            pathlib.Path(self.mark).touch()

    if __name__ == "__main__":
        builder = TopologyBuilder()
        builder.spout("nothing", Nothing())
        builder.bolt("slow", Slow(MARK)).shuffle("nothing")
        submit_topology("slow", {}, builder.build())
    """
    mark = runner.out / "stopped"
    runner.write("slow.py", f"MARK = {str(mark)!r}\n", stops)
    conf = {**default_conf(), "supervisor.worker.shutdown.sleep.secs": 30}
    status = terminate(
        runner, exit_secs=5, SQUALL_MODE="local", SQUALL_CLIENT_CONF=json.dumps(conf)
    )
    assert (status, mark.exists()) == (128 + signal.SIGTERM, True)


def test_local_mode_collects_garbage_as_a_worker_does(runner):
    """With Python's defaults it looked at all rows that wait for a checkpoint, again and again."""
    runner.write("words.py", WORDS, GUARDED, "        import gc; print(gc.get_threshold()[0])\n")
    done = runner.run("words.py", "words", SQUALL_MODE="local", SQUALL_LOCAL_TTL="0")
    assert done.status == 0, done.err
    assert int(done.out.split()[0]) >= 50_000


def test_an_entry_point_that_submits_nothing_is_noted(runner):
    runner.write("quiet.py", "print('done')\n")
    result = runner.run("quiet")
    assert (result.status, result.out) == (0, "done\n")
    assert result.err == "note: quiet ended without submitting a topology\n"


# ---- What does not ----


def test_an_unguarded_submit_is_refused_before_anything_is_uploaded(runner, nimbus):
    runner.write("wc.py", WORDS, "submit_topology('counts', {}, build())\n")
    message = runner.fail("wc", conf=nimbus.conf)
    assert "importing module 'wc' calls submit_topology, and every worker imports it" in message
    assert 'if __name__ == "__main__":' in message
    assert [name for name, _ in nimbus.calls] == ["getLeader", "isTopologyNameAllowed"]


def test_an_unguarded_submit_is_refused_even_inside_except_exception(runner, nimbus):
    sheltered = """
    try:
        submit_topology('counts', {}, build())
    except Exception:
        raise
    """
    runner.write("wc.py", WORDS, sheltered)
    assert "calls submit_topology" in runner.fail("wc", conf=nimbus.conf)
    assert [name for name, _ in nimbus.calls] == ["getLeader", "isTopologyNameAllowed"]


def test_an_unguarded_program_that_exits_on_import_is_refused(runner, nimbus):
    unguarded = """
    import sys
    if len(sys.argv) < 2:
        sys.exit("usage: wc NAME")
    """
    runner.write("wc.py", WORDS, unguarded, GUARDED)
    message = runner.fail("wc", "counts", conf=nimbus.conf)
    assert "importing module 'wc' ends the interpreter" in message
    assert [name for name, _ in nimbus.calls] == ["getLeader", "isTopologyNameAllowed"]


def test_a_module_that_only_the_client_has_is_refused(runner, nimbus, tmp_path):
    """The worker has the package and nothing of the folder that the client ran in."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.py").write_text(dedent(WORDS))
    uses = f"""
    import sys
    sys.path.append({str(tmp_path / "elsewhere")!r})
    from mine import build
    from squall import submit_topology
    if __name__ == "__main__":
        submit_topology("counts", {{}}, build())
    """
    runner.write("wc.py", uses)
    message = runner.fail("wc", conf=nimbus.conf)
    assert "there is no module 'mine' in the package" in message
    assert [name for name, _ in nimbus.calls] == ["getLeader", "isTopologyNameAllowed"]


def test_a_module_that_fails_to_import_in_the_worker_is_refused(runner, nimbus):
    runner.write(
        "wc.py", "import sys\nif sys.argv[0] == '-c' or 'import_check' in sys.argv[0]:\n"
        "    raise RuntimeError('not here')\n", WORDS, GUARDED,
    )  # fmt: skip
    message = runner.fail("wc", "counts", conf=nimbus.conf)
    assert "could not import module 'wc': RuntimeError: not here" in message
    assert [name for name, _ in nimbus.calls] == ["getLeader", "isTopologyNameAllowed"]


def test_an_invalid_topology_is_one_message_that_lists_all(runner, nimbus):
    runner.write(
        "wc.py",
        WORDS,
        """
        if __name__ == "__main__":
            builder = TopologyBuilder()
            builder.bolt("count", Count()).shuffle("words")
            builder.bolt("more", Count)
            submit_topology("counts", {}, builder.build())
        """,
    )
    message = runner.fail("wc", conf=nimbus.conf)
    assert "3 things are wrong with this topology" in message
    for part in ("has no spout", "subscribes to 'words'", "Count is a class"):
        assert part in message
    assert nimbus.calls == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ('submit_topology("a/b", {}, build())', "may not contain"),
        ('submit_topology("", {}, build())', "may not be empty"),
        ("submit_topology(3, {}, build())", "the topology's name is 3"),
        ('submit_topology("x", {"topology.workers": "two"}, build())', "topology.workers is 'two'"),
        ('submit_topology("x", {"mine": object}, build())', "expected a JSON value"),
        ('submit_topology("x", [], build())', "expected a dict or None"),
        ('submit_topology("x", {}, TopologyBuilder())', "pass builder.build()"),
        ('submit_topology("x", {}, build(), initial_status="ON")', 'expected "ACTIVE"'),
    ],
)
def test_what_cannot_be_submitted_is_refused_here(runner, nimbus, call, says):
    runner.write("wc.py", WORDS, f'if __name__ == "__main__":\n    {call}\n')
    assert says in runner.fail("wc", conf=nimbus.conf)
    assert nimbus.calls == []


def test_a_component_conf_of_the_wrong_type_is_refused_by_name(runner, nimbus):
    runner.write(
        "wc.py",
        WORDS,
        """
        if __name__ == "__main__":
            builder = TopologyBuilder()
            builder.spout("words", Words("x"), conf={"topology.max.spout.pending": "many"})
            submit_topology("counts", {}, builder.build())
        """,
    )
    message = runner.fail("wc", conf=nimbus.conf)
    assert "spout 'words': its topology.max.spout.pending is 'many'; expected" in message


def test_a_name_that_is_taken_is_said_before_the_import_check_and_the_upload(runner, nimbus):
    nimbus.answers["isTopologyNameAllowed"] = False
    # A module that a worker could not import: the check would refuse it.
    runner.write("wc.py", "if __name__ != '__main__': raise ImportError\n", WORDS, GUARDED)
    message = runner.fail("wc", "counts", conf=nimbus.conf)
    assert "there is already a topology named 'counts'" in message
    assert "storm kill counts" in message
    assert nimbus.uploads == {}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (storm.AlreadyAliveException(msg="counts is alive"), "already a topology named 'counts'"),
        (storm.InvalidTopologyException(msg="no workers"), "Nimbus refused topology 'counts': no"),
        (storm.AuthorizationException(msg="not you"), "may not submit topology 'counts': not you"),
        (ValueError("oops"), "Nimbus could not accept topology 'counts'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nimbus_refuses_is_one_message(runner, nimbus, error, says):
    nimbus.answers["submitTopologyWithOpts"] = error
    runner.write("wc.py", WORDS, GUARDED)
    assert says in runner.fail("wc", "counts", conf=nimbus.conf)


def test_a_wrong_nimbus_address_is_one_message(runner):
    runner.write("wc.py", WORDS, GUARDED)
    with fake_nimbus() as gone:
        conf = gone.conf
    message = runner.fail("wc", "counts", conf=conf)
    assert "Nimbus cannot be reached" in message
    assert "is it running?" in message


def test_the_users_own_exception_shows_the_users_traceback(runner, nimbus):
    runner.write("wc.py", "def deep():\n    return 1 / 0\n\ndeep()\n")
    result = runner.run("wc", conf=nimbus.conf)
    assert result.status == 1
    assert result.err.startswith("Traceback (most recent call last):\n")
    assert result.err.endswith("ZeroDivisionError: division by zero\n")
    assert [line for line in result.err.splitlines() if line.startswith("  File")] == [
        line for line in result.err.splitlines() if "wc.py" in line
    ]


def test_a_syntax_error_in_the_package_is_shown_as_python_shows_it(runner):
    runner.write("wc.py", "def (:\n")
    result = runner.run("wc")
    assert result.status == 1
    assert "SyntaxError" in result.err
    assert "squall" not in result.err.replace("squall-entry-", "")


def test_an_archive_that_leads_out_is_refused(runner, tmp_path):
    import zipfile

    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("wc.py", "")
        file.writestr("../evil.py", "")
    assert "../evil.py" in runner.fail("wc", archive=archive)
    assert not (tmp_path / "evil.py").exists()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("wcc", "did you mean 'wc'?"),
        ("sub.wc", "did you mean 'wc'?"),
        ("package/wc.py", "did you mean 'wc'?"),
        ("wc:nothing", "module 'wc' has no function 'nothing'"),
        ("wc:a-b", "is not a function name"),
        ("../wc.py", "lies outside the package"),
        ("/etc/wc.py", "lies outside the package"),
        ("", "is not an entry point"),
        ("a..b", "is not an entry point"),
        ("pkg", "without __main__.py"),
        ("json", "has the same name as a module that Python or squall uses"),
    ],
)
def test_an_entry_point_that_is_not_there_is_refused(runner, entry, says):
    runner.write("wc.py", "")
    runner.write("pkg/__init__.py")
    runner.write("json.py", "")
    assert says in runner.fail(entry)


def test_the_modules_of_a_package_are_listed_if_no_name_is_similar(tmp_path):
    (tmp_path / "alpha.py").write_text("")
    with pytest.raises(PackageError) as caught:
        find_entry("zzz", tmp_path)
    assert str(caught.value) == "the package has no module 'zzz'\nit has: alpha"


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        ("bank.nope", "did you mean 'bank.topology'?"),
        ("zzz", "it has: bank.topology"),
        ("bank.topolgy", "did you mean 'bank.topology'?"),
        ("bnk:main", "did you mean 'bank'?"),
    ],
)
def test_only_what_can_be_run_is_suggested(tmp_path, entry, hint):
    (tmp_path / "bank").mkdir()
    for name in ("__init__", "topology"):
        (tmp_path / "bank" / f"{name}.py").write_text("")
    with pytest.raises(PackageError) as caught:
        find_entry(entry, tmp_path)
    assert caught.value.hint == hint


# ---- Local mode ----

COUNTING = """
    from squall import Bolt, Spout, TopologyBuilder, submit_topology

    class Numbers(Spout):
        outputs = ["n"]
        def open(self, conf, context):
            self.left = list(range(50))
        def next_tuple(self):
            if self.left:
                n = self.left.pop()
                self.emit([n], message_id=n)

    class Sink(Bolt):
        def __init__(self, path):
            self.path = path
        def prepare(self, conf, context):
            self.log.info("mine is %s", conf["mine"])
        def execute(self, tup):
            if tup["n"] == 7:
                raise ValueError("seven")
            with open(self.path, "a") as file:
                file.write(f"{tup['n']}\\n")

    if __name__ == "__main__":
        import sys
        for name in sys.argv[2:]:
            builder = TopologyBuilder()
            builder.spout("numbers", Numbers())
            builder.bolt("sink", Sink(sys.argv[1]), parallelism=2).shuffle("numbers")
            submit_topology(name, {"mine": name}, builder.build())
"""


def test_storm_local_runs_topologies_here_for_their_time(runner, tmp_path):
    runner.write("numbers_.py", COUNTING)
    out = tmp_path / "numbers.txt"
    result = runner.run(
        "numbers_", str(out), "one", "two", SQUALL_MODE="local", SQUALL_LOCAL_TTL="1.5"
    )
    assert result.status == 1, result.err
    assert result.err.splitlines()[-2:] == [
        "error: 2 messages failed, and no replay succeeded",
        "hint: the errors above say why; a message that timed out has none",
    ]
    expected = [n for n in range(50) if n != 7]
    assert sorted(int(line) for line in out.read_text().split()) == sorted(2 * expected)
    for name in ("one", "two"):
        assert f"{name}: numbers: emitted 50, transferred 50, acked 49, failed 1" in result.err
        assert f"mine is {name}" in result.err
        assert f"{name}: sink: last errors: ValueError: seven" in result.err


def test_local_mode_refuses_an_unguarded_submit(runner):
    runner.write("wc.py", WORDS, "submit_topology('counts', {}, build())\n")
    message = runner.fail("wc", SQUALL_MODE="local", SQUALL_LOCAL_TTL="1")
    assert "importing module 'wc' calls submit_topology" in message


REFUSING = """
    from squall import RewindableSpout, TopologyBuilder, TransactionalSink, submit_topology

    class Numbers(RewindableSpout):
        outputs = ["n"]

        def seek(self, positions):
            self.at = positions.get("all", 0)

        def next_tuple(self):
            if self.at < 9:
                self.at += 1
                self.emit([self.at], position=("all", self.at))

    class Store(TransactionalSink):
        def commit(self, batches):
            if any(batch.rows for batch in batches):
                raise OSError(28, "No space left on device")

    def main(folder):
        builder = TopologyBuilder()
        builder.spout("numbers", Numbers())
        builder.bolt("store", Store()).shuffle("numbers")
        conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": folder}
        submit_topology("numbers", conf, builder.build())

    if __name__ == "__main__":
        import sys
        main(sys.argv[1])
    """


def test_local_mode_fails_if_sinks_lack_what_was_processed(runner, tmp_path):
    """All is acked, and the disk of the sink is full."""
    runner.write("wc.py", REFUSING)
    found = runner.run("wc", str(tmp_path / "state"), SQUALL_MODE="local", SQUALL_LOCAL_TTL="1")
    assert found.status == 1, found
    assert (
        "error: numbers ended without a last checkpoint: what came after the one before"
        in found.err
    )
    assert "No space left on device" in found.err


def test_local_mode_succeeds_if_the_last_checkpoint_is_whole(runner, tmp_path):
    runner.write("wc.py", REFUSING.replace("raise OSError(28, ", "print("))
    found = runner.run("wc", str(tmp_path / "state"), SQUALL_MODE="local", SQUALL_LOCAL_TTL="1")
    assert (found.status, found.out.split()[:3]) == (0, ["No", "space", "left"]), found


def test_a_component_that_cannot_start_is_reported_in_local_mode(runner):
    """The log has the component's own traceback; the last line is the one message."""
    runner.write(
        "wc.py",
        WORDS,
        """
        class Fails(Words):
            def open(self, conf, context):
                raise OSError("no such source")

        if __name__ == "__main__":
            builder = TopologyBuilder()
            builder.spout("words", Fails("x"))
            submit_topology("counts", {}, builder.build())
        """,
    )
    result = runner.run("wc", "counts", SQUALL_MODE="local", SQUALL_LOCAL_TTL="1")
    assert result.status == 1
    log, _, message = result.err.partition("\nerror: ")
    assert message == "component 'words': open() failed: OSError: no such source\n"
    assert "component_error component=words" in log
    assert 'raise OSError("no such source")' in log


def test_a_package_that_is_missing_here_names_the_option_that_ships_it(runner):
    runner.write("wc.py", "import not_installed_anywhere\n", WORDS, GUARDED)
    result = runner.run("wc", "counts", SQUALL_MODE="local")
    assert result.status == 1
    assert result.err.splitlines()[-1] == (
        "hint: 'not_installed_anywhere' is neither in the package nor among "
        "its dependencies: ship it with --requirements FILE"
    )


def test_a_call_that_does_not_return_does_not_keep_local_mode_alive(runner):
    held = WORDS.replace(
        "        def next_tuple(self):\n            pass",
        "        def next_tuple(self):\n            time.sleep(600)",
    )
    runner.write("wc.py", "    import time\n" + held, GUARDED)
    began = time.monotonic()
    result = runner.run("wc", "counts", SQUALL_MODE="local", SQUALL_LOCAL_TTL="9")
    assert result.status == 1
    _, _, shown = result.err.partition("\nerror: the topology cannot be stopped")
    assert "in next_tuple\n    time.sleep(600)" in shown
    assert shown.count("  File ") == 1  # none of the engine's
    assert time.monotonic() - began < 9 + 8  # it has had its time by then, and 10 s were added


def test_ctrl_c_ends_local_mode(runner):
    runner.write("wc.py", WORDS, GUARDED)
    archive = build_package(runner.source, runner.out)
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "squall._entry", "wc", "counts"],
        env={
            **os.environ,
            "STORM_JAR": str(archive),
            "SQUALL_MODE": "local",
            "TMPDIR": str(runner.temporary),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stderr is not None
        for line in child.stderr:
            if "topology_started" in line:
                break
        child.send_signal(signal.SIGINT)
        reported = child.stderr.read()
        assert child.wait(30) == 128 + signal.SIGINT
    assert "counts: words: emitted 0" in reported
    assert "Traceback" not in reported
    assert list(runner.temporary.iterdir()) == []


def test_outside_of_storm_jar_submit_topology_says_how_to_run(runner):
    runner.write("wc.py", WORDS, GUARDED)
    done = subprocess.run(
        [sys.executable, "wc.py", "x"],
        cwd=runner.source,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SQUALL_MODE": "", "PYTHONPATH": PYTHONPATH},
    )
    assert done.returncode == 1
    assert "storm jar FOLDER MODULE" in done.stderr
