"""What the containers of deploy/compose start with, and what compose.yaml promises."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from squall_cli.main import SECTIONS
from squall_common.config.load import default_conf, unknown_keys, validate_conf

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
ENTRYPOINT = COMPOSE / "entrypoint.py"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())[
    "services"
]
OURS = {name: one for name, one in SERVICES.items() if name != "zookeeper"}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("squall_entrypoint", ENTRYPOINT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


entrypoint = _load()


def test_ports_are_published_to_this_machine_only() -> None:
    published = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert len(published) == 4
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = OURS[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert "privileged" not in service
    assert "user" not in service  # the image's: 1000


@pytest.mark.parametrize("name", [name for name in OURS if name != "wordcount"])
def test_a_service_runs_a_daemon_with_a_valid_configuration(name: str) -> None:
    service = OURS[name]
    assert service["command"][1] in SECTIONS["Daemons"]
    assert service["restart"] == "unless-stopped"
    env = {**service["environment"]}
    env["STORM_YAML"] = env["STORM_YAML"].replace("${SQUALL_CONF:-}", "topology.workers: 2")
    conf = entrypoint.rendered(env)
    validate_conf(conf)
    assert unknown_keys(conf) == {}
    assert conf["topology.workers"] == 2
    for seed in conf["nimbus.seeds"]:
        host, _, port = seed.partition(":")
        assert OURS[host]["hostname"] == host
        listens = entrypoint.port_of(OURS[host]["command"], conf)
        assert listens == int(port or 6627)
        assert f"127.0.0.1:{listens}:{listens}" in OURS[host]["ports"]
    assert conf["drpc.servers"] == ["drpc"]
    assert conf["storm.zookeeper.servers"] == ["zookeeper"]


def test_the_default_ports_are_those_of_the_configuration() -> None:
    conf = default_conf()
    for daemon, (key, default) in entrypoint.PORTS.items():
        assert conf[key] == default
        assert entrypoint.port_of(["storm", daemon], {}) == default
        assert entrypoint.port_of(["storm", daemon], {key: 7000}) == 7000
        assert entrypoint.port_of(["storm", daemon, "-c", f"{key}=7001"], {key: 7000}) == 7001


def test_the_environment_gives_storm_yaml() -> None:
    conf = entrypoint.rendered(
        {
            "STORM_ZOOKEEPER_SERVERS": "a, b,",
            "NIMBUS_SEEDS": "n",
            "STORM_DATA_DIR": "/d",
            "STORM_YAML": "storm.bind.host: 127.0.0.1",
        }
    )
    assert conf == {
        "storm.local.dir": "/d",
        "storm.log.dir": "/logs",
        "storm.bind.host": "127.0.0.1",
        "storm.zookeeper.servers": ["a", "b"],
        "nimbus.seeds": ["n"],
    }


def test_a_mounted_storm_yaml_is_left_alone_and_a_written_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "storm.yaml"
    entrypoint.site_conf(path, {"NIMBUS_SEEDS": "n"})
    assert path.stat().st_mode & 0o777 == 0o600
    entrypoint.site_conf(path, {"NIMBUS_SEEDS": "m"})
    assert yaml.safe_load(path.read_text())["nimbus.seeds"] == ["m"]
    path.write_text("nimbus.seeds: [mounted]\n")
    assert entrypoint.site_conf(path, {"NIMBUS_SEEDS": "n"}) == {"nimbus.seeds": ["mounted"]}
    assert path.read_text() == "nimbus.seeds: [mounted]\n"


def test_a_daemon_learns_the_name_that_others_resolve() -> None:
    env = {"STORM_LOCAL_HOSTNAME": "node7"}
    given = entrypoint.with_hostname(["storm", "supervisor", "-c", "a=b"], {}, env)
    assert given == ["storm", "supervisor", "-c", "storm.local.hostname=node7", "-c", "a=b"]
    for command, conf in (
        (["storm", "nimbus", "-c", "storm.local.hostname=x"], {}),
        (["storm", "nimbus"], {"storm.local.hostname": "x"}),
    ):
        assert entrypoint.with_hostname(command, conf, env) == command


@pytest.mark.parametrize("text", ["- a\n", "a: [", "just words"])
def test_a_bad_environment_is_told_in_one_message(tmp_path: Path, text: str) -> None:
    done = _run(tmp_path, "true", STORM_YAML=text)
    assert done.returncode == 2
    assert done.stderr.startswith("entrypoint: STORM_YAML is no")
    assert "Traceback" not in done.stderr


def test_a_folder_that_cannot_be_written_is_told_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("a file")
    done = _run(tmp_path, "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"entrypoint: {tmp_path}/conf/storm.yaml cannot be read")


def test_any_other_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert _run(tmp_path, "sh", "-c", "exit 7").returncode == 7
    missing = _run(tmp_path, "no-such-program")
    assert missing.returncode == 2
    assert missing.stderr == "entrypoint: no-such-program: No such file or directory\n"


def _environment(folder: Path, **more: str) -> dict[str, str]:
    if not (folder / "conf").exists():
        (folder / "conf").mkdir()
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "STORM_CONF_DIR": str(folder / "conf"),
        "STORM_LOCAL_HOSTNAME": "here",
        **more,
    }


def _run(folder: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ENTRYPOINT), *command],
        env=_environment(folder, **env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts the entrypoint with a `storm` of the test's own, which notes how it is called."""
    started = []

    def start(script: str) -> subprocess.Popen[str]:
        storm = tmp_path / "storm"
        storm.write_text(f'#!/bin/sh\necho "$$ $*" >> {tmp_path}/calls\n{script}\n')
        storm.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, str(ENTRYPOINT), "storm", "supervisor"],
            env=_environment(tmp_path),
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=30)


def _calls(folder: Path, count: int) -> list[str]:
    deadline = time.monotonic() + 60
    path = folder / "calls"
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, path.read_text() if path.exists() else "no calls"
        time.sleep(0.02)
    return path.read_text().splitlines()


def test_a_killed_supervisor_is_started_again_and_a_stop_ends_its_workers(
    tmp_path: Path, supervised: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = supervised('[ "$1" = kill_workers ] || exec sleep 60')
    (first,) = _calls(tmp_path, 1)
    pid, arguments = first.split(" ", 1)
    assert arguments == "supervisor -c storm.local.hostname=here"
    os.kill(int(pid), signal.SIGKILL)
    second = _calls(tmp_path, 2)[1]
    assert second.split(" ", 1)[1] == arguments
    assert process.poll() is None
    process.terminate()
    assert process.wait(30) == 0
    last = _calls(tmp_path, 3)[2]
    assert last.split(" ", 1)[1] == "kill_workers -c storm.local.hostname=here"
    with pytest.raises(ProcessLookupError):
        os.kill(int(second.split()[0]), 0)


def test_a_wrong_command_line_is_not_tried_again(
    tmp_path: Path, supervised: Callable[[str], subprocess.Popen[str]]
) -> None:
    process = supervised("exit 2")
    assert process.wait(60) == 2
    assert len(_calls(tmp_path, 1)) == 1
