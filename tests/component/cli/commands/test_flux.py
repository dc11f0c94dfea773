"""`storm flux`: checks, shows and runs what a YAML file defines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from tests.support.devcluster import storm
from tests.support.json_schemas import schemas
from tests.support.thirdparty import unavailable

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "flux"
WORDS = EXAMPLES / "words.yaml"


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTS", str(tmp_path / "counts.json"))
    return tmp_path / "counts.json"


FILTERS = ("--filter", EXAMPLES / "dev.properties", "--env-filter")


def test_a_dry_run_shows_the_topology_and_runs_nothing(counts: Path) -> None:
    done = storm("flux", "--dry-run", *FILTERS, WORDS, check=True)
    assert done.stdout.splitlines() == [
        "topology flux-words",
        "  spout sentences ×1: words:Sentences",
        "  bolt split ×2: words:Split",
        "  bolt count ×1: words:Count",
        "  sentences --shuffle--> split",
        "  split --fields (word)--> count",
    ]
    assert not counts.exists()


def test_json_is_as_its_schema_says(counts: Path) -> None:
    done = storm("flux", "--dry-run", "--json", *FILTERS, WORDS, check=True)
    answer = json.loads(done.stdout)
    jsonschema.validate(answer, schemas()["storm flux"])
    assert [component["runs"] for component in answer["components"]] == [
        "words:Sentences",
        "words:Split",
        "words:Count",
    ]


def test_a_local_run_counts_the_words(counts: Path) -> None:
    storm("flux", "--local", "--sleep", "4000", *FILTERS, WORDS, check=True)
    found = json.loads(counts.read_text())
    assert found["apple"] == found["moon"] == 20
    assert "The" not in found, "the property `lower` was not set"
    assert "the" not in found, "the method `ignore` was not called"


def test_a_file_for_storm_runs_unchanged() -> None:
    if shutil.which("node") is None:
        unavailable("there is no `node` on this machine")
    counted = ("squall_flux ['cow', 1]", "squall_flux ['apple', 1]")
    for millis in ("3000", "15000", "60000"):  # the children take their time on a busy machine
        done = storm("flux", "-l", "-s", millis, "-q", EXAMPLES / "shell.yaml", check=True)
        if any(words in done.stderr for words in counted):
            break
    assert any(words in done.stderr for words in counted), done.stderr
    assert "count" in done.stderr


def test_a_file_in_the_package_is_found(counts: Path, tmp_path: Path) -> None:
    done = storm(
        "flux", "-d", "-R", "--package", EXAMPLES, *FILTERS, "words.yaml", cwd=tmp_path, check=True
    )
    assert done.stdout.startswith("topology flux-words\n")


def test_what_is_wrong_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("name: t\nspouts:\n  - id: a\n    clasName: x\n")
    done = storm("flux", "--dry-run", "t.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "t.yaml:4:5: spouts[0]: unknown key 'clasName'; did you mean 'className'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["t.yaml"], "--local, --remote or --dry-run"),
        (["--local", "--remote", "t.yaml"], "exclude each other"),
        (["--local", "--json", "t.yaml"], "--json needs --dry-run"),
        (["--remote", "--sleep", "1", "t.yaml"], "--sleep needs --local"),
        (["--dry-run", "--resource", "t.yaml"], "--resource needs --package"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], expected: str) -> None:
    done = storm("flux", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
