"""The options of every sub-command: what it says about its configuration."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from squall_cli.options import Settings, settings_options


@click.command()
@settings_options
def command(settings: Settings) -> None:
    settings.load()
    settings.client()


def test_a_command_warns_once_and_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it loads its configuration."""
    site = tmp_path / ".storm" / "storm.yaml"
    site.parent.mkdir()
    site.write_text("nimbus.childopts: -Xmx2g\nworker.childopts: -Xmx1g\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("STORM_CONF_DIR", raising=False)
    for _ in range(2):  # each run of a command speaks for itself
        command.main(["-c", "topology.worker=2"], standalone_mode=False)
        assert capsys.readouterr().err.splitlines() == [
            f"warning: {site}: these keys have no effect: nimbus.childopts, worker.childopts "
            "(there is no JVM)",
            "warning: -c: unknown option topology.worker (did you mean topology.workers?)",
        ]
