"""The Ruby and JavaScript adapters that Squall ships, in real interpreters."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.shells import PACKAGE, running
from tests.support.thirdparty import command

from squall import ShellBolt, ShellSpout, Stream

pytestmark = pytest.mark.integration

FOLDER = PACKAGE.parents[2] / "api" / "squall" / "multilang"
# language: (interpreter, components, adapter)
LANGUAGES = {
    "ruby": ("ruby", "adapter.rb", FOLDER / "ruby" / "lib" / "storm.rb"),
    "javascript": ("node", "adapter.js", FOLDER / "javascript" / "storm.js"),
}
BOTH = pytest.mark.parametrize("language", LANGUAGES)
SERIALIZERS = pytest.mark.parametrize("serializer", ["json", "msgpack"])


def shell(language: str, kind: str, of: Any = ShellBolt, **keys: Any) -> Any:
    interpreter, script, adapter = LANGUAGES[language]
    environment = {"KIND": kind, "ADAPTER": str(adapter)}
    return of(command(interpreter), script, environment=environment, **keys)


@BOTH
@SERIALIZERS
def test_a_basic_bolt_acks_and_fails_by_itself(
    language: str, serializer: str, caplog: pytest.LogCaptureFixture
) -> None:
    bolt = shell(language, "basic", outputs=["n", "text", "deep"], serializer=serializer)
    with caplog.at_level(logging.INFO), running(bolt) as run:
        run.wait_all_acked()
        values = run.account.seen
        assert {value[0]: count for value, count in values.items()} == dict.fromkeys(range(200), 1)
        [deep] = {repr(value[1:]) for value in values}
        assert "ü∂ß" in deep
        assert "1099511627776, -1, -200, -70000" in deep
        assert run.account.failed == {7: 1}
        (error,) = run.errors()
        assert "not seven, the first time" in error
    logged = [record for record in caplog.records if "prepared shell" in record.getMessage()]
    assert logged[0].levelno == logging.WARNING
    assert "of shells" in logged[0].getMessage()
    assert any("a stray print" in record.getMessage() for record in caplog.records)


@BOTH
@SERIALIZERS
def test_a_careful_bolt_chooses_anchors_streams_and_tasks(language: str, serializer: str) -> None:
    fields = ["n", "how"]
    outputs = {
        "default": fields,
        "side": Stream(fields),
        "direct": Stream(fields, direct=True),
    }
    bolt = shell(language, "careful", outputs=outputs, serializer=serializer)

    def connect(builder: Any) -> None:
        sink = next(one for one in builder._declarers if one.id == "sink")
        sink.shuffle("shell", stream="side").direct("shell", stream="direct")

    conf = {"topology.tick.tuple.freq.secs": 1}
    with running(bolt, count=50, more=[connect], bolt_conf=conf) as run:
        run.wait_all_acked()
        for how in ("default", "side", "direct"):
            seen = {n: times for (n, what), times in run.account.seen.items() if what == how}
            assert seen == {n: 2 if n == 5 else 1 for n in range(50)}
        assert run.account.failed == {5: 1}
        assert not run.errors()


@BOTH
@SERIALIZERS
def test_a_spout_gets_its_acks(language: str, serializer: str) -> None:
    spout = shell(language, "spout", ShellSpout, outputs=["n"], serializer=serializer)
    with running(None, spout=spout) as run:
        run.wait(lambda: len(run.account.seen) == 100)
        assert run.account.seen == dict.fromkeys(range(-50, 50), 1)
        assert not run.errors()


@BOTH
def test_an_error_that_nothing_handles_is_reported_and_ends_the_process(language: str) -> None:
    with running(shell(language, "raises", outputs=["n"]), count=1) as run:
        run.wait(lambda: any("exited with status 1" in error for error in run.errors()))
        assert "out of order" in run.errors()[0]


def test_the_gem_builds_and_is_required_by_name(tmp_path: Path) -> None:
    gem, folder = command("gem"), FOLDER / "ruby"
    subprocess.run(
        [gem, "build", "squall-storm.gemspec", "--output", str(tmp_path / "a.gem")],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    installed = tmp_path / "gems"
    subprocess.run(
        [gem, "install", "--local", "--no-document", "--install-dir", str(installed), "a.gem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    told = subprocess.run(
        [command("ruby"), "-e", "require 'storm'; puts Storm::BasicBolt.superclass"],
        env={"GEM_PATH": str(installed)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout == "Storm::Bolt\n"


def test_the_npm_package_is_required_by_name(tmp_path: Path) -> None:
    """npm itself needs no network for a folder, but Debian's weighs 200 MB: Node is enough."""
    folder = FOLDER / "javascript"
    described = json.loads((folder / "package.json").read_text())
    assert all((folder / name).is_file() for name in described["files"])
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (modules / described["name"]).symlink_to(folder)
    told = subprocess.run(
        [command("node"), "-p", "new (require('squall-storm').BasicBolt)().constructor.name"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert told.stdout == "BasicBolt\n"


def test_the_example_has_the_adapters_as_they_are() -> None:
    resources = FOLDER.parents[2] / "examples" / "multilang" / "resources"
    for _, _, adapter in LANGUAGES.values():
        assert (resources / adapter.name).read_text() == adapter.read_text()


MESSAGES = [
    None, True, False, 0, 127, 128, -32, -33, -129, 255, 256, 65_535, 65_536, 2**31, -(2**31) - 1,
    2**40, -(2**40), 1.5, -0.25, "", "x" * 31, "x" * 32, "ü" * 200, "x" * 70_000, [], [1] * 15,
    [1] * 16, [[1]] * 70_000, {}, {f"k{n}": n for n in range(16)}, {"a": {"b": [None]}},
]  # fmt: skip


@BOTH
def test_messagepack_goes_through_and_comes_back(language: str) -> None:
    """In JavaScript cut into pieces of many sizes, as a pipe may deliver it."""
    sent = b"".join(msgspec.msgpack.encode(message) for message in MESSAGES)
    adapter = LANGUAGES[language][2]
    if language == "ruby":
        code = (
            f"require '{adapter}'\n"
            "pipe = Storm::MessagePackPipe.new($stdin.binmode, $stdout.binmode)\n"
            f"pipe.write(Array.new({len(MESSAGES)}) {{ pipe.read }})"
        )
        argv = [command("ruby"), "-e", code]
    else:
        code = (
            f"const {{ MessagePackCodec }} = require('{adapter}');"
            "const codec = new MessagePackCodec(); const fs = require('fs');"
            "const all = fs.readFileSync(0); const found = []; let at = 0; let size = 1;"
            "while (at < all.length) {"
            "  found.push(...codec.read(all.subarray(at, at + size)));"
            "  at += size; size = 1 + (size * 7) % 5000;"
            "}"
            "fs.writeFileSync(1, codec.write(found));"
        )
        argv = [command("node"), "-e", code]
    came = subprocess.run(argv, input=sent, check=True, capture_output=True).stdout
    assert msgspec.msgpack.decode(came) == MESSAGES


def test_a_large_message_costs_as_much_as_its_bytes_in_javascript() -> None:
    """It comes in thousands of pieces; to begin anew with each took minutes."""
    code = (
        f"const storm = require('{LANGUAGES['javascript'][2]}');"
        "const message = [new Array(1 << 20).fill(1.5e300), 'x'.repeat(1 << 25)];"
        "for (const Codec of [storm.JsonCodec, storm.MessagePackCodec]) {"
        "  const codec = new Codec(); const all = Buffer.from(codec.write(message));"
        "  const found = [];"
        "  for (let at = 0; at < all.length; at += 4096) {"
        "    found.push(...codec.read(all.subarray(at, at + 4096)));"
        "  }"
        "  require('assert').deepStrictEqual(found, [message]);"
        "}"
    )
    subprocess.run([command("node"), "-e", code], check=True, timeout=60)


def test_an_emit_that_cannot_be_sent_takes_no_task_ids_of_others_in_javascript() -> None:
    code = (
        f"const storm = require('{LANGUAGES['javascript'][2]}');"
        "const bolt = new storm.Bolt(); const got = [];"
        "bolt._codec = new storm.JsonCodec(); bolt._first = false; bolt._write = () => {};"
        "try { bolt.emit({ tuple: [10n] }, () => got.push('of another emit')); }"
        "catch (error) { got.push(error.name); }"
        "bolt.emit({ tuple: [10] }, (ids) => got.push(ids));"
        "bolt._receive(Buffer.from('[7]\\nend\\n'));"
        "console.log(JSON.stringify(got));"
    )
    came = subprocess.run([command("node"), "-e", code], check=True, capture_output=True)
    assert json.loads(came.stdout) == ["TypeError", [7]]


@BOTH
def test_a_child_that_is_asked_to_end_reports_no_error(language: str, tmp_path: Path) -> None:
    interpreter, script, adapter = LANGUAGES[language]
    setup = {"conf": {}, "context": {"taskid": 1, "componentid": "c"}, "pidDir": str(tmp_path)}
    with subprocess.Popen(
        [command(interpreter), script],
        cwd=PACKAGE / "resources",
        env={**os.environ, "KIND": "careful", "ADAPTER": str(adapter)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(setup).encode() + b"\nend\n")
        child.stdin.write(
            b'{"id":"1","comp":"c","stream":"__heartbeat","task":-1,"tuple":[]}\nend\n'
        )
        child.stdin.flush()
        said = [child.stdout.readline() for _ in range(4)]
        assert json.loads(said[2]) == {"command": "sync"}
        child.terminate()
        assert child.stdout.read() == b""
    assert child.returncode == -signal.SIGTERM
