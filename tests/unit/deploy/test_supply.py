"""The audit of the locked packages, and the bill of materials."""

from __future__ import annotations

import datetime
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from deploy.supply import audit, sbom
from deploy.supply.advisories import Database
from deploy.supply.audit import CONTROL, UnknownError, understood
from deploy.supply.locked import locked

NOW = datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC)
KNOWN = {"name": CONTROL[0], "version": CONTROL[1],
         "vulns": [{"id": "PYSEC-2017-94", "aliases": [], "fix_versions": []}]}  # fmt: skip


def advisory(name: str, modified: str = "2026-11-20T00:00:00Z", **more: Any) -> dict[str, Any]:
    return {
        "id": "PYSEC-1", "aliases": ["CVE-2026-1"], "modified": modified,
        "affected": [{"package": {"ecosystem": "PyPI", "name": name}, **more}],
    }  # fmt: skip


def copy(folder: Path, *advisories: dict[str, Any]) -> Path:
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for index, one in enumerate(advisories):
            archive.writestr(f"{index}.json", json.dumps(one))
    return path


def events(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": [{kind: at} for kind, at in pairs]}]}


def test_every_locked_package_has_one_version() -> None:
    packages = locked()
    assert packages["pyyaml"]
    assert "squall" not in packages
    with pytest.raises(ValueError, match="does not pin one version"):
        locked("PyYAML>=6\n")


TWICE = events(("introduced", "1"), ("fixed", "2"), ("introduced", "3"), ("fixed", "4"))


@pytest.mark.parametrize(
    ("affected", "version", "found"),
    [
        (events(("introduced", "0"), ("fixed", "5.4")), "5.3.1", True),
        (events(("introduced", "0"), ("fixed", "5.4")), "5.4", False),
        (events(("introduced", "0"), ("fixed", "5.4")), "5.4rc1", True),
        (events(("introduced", "5.1")), "5.0", False),
        (events(("introduced", "5.1")), "9", True),
        (events(("introduced", "5.1"), ("last_affected", "5.3")), "5.3", True),
        (events(("introduced", "5.1"), ("last_affected", "5.3")), "5.3.1", False),
        (events(("introduced", "r1"), ("fixed", "5.4")), "5.3.1", True),
        (events(("introduced", "r1"), ("fixed", "5.4")), "5.4", False),
        (events(("introduced", "0"), ("fixed", "r2")), "5.4", True),
        (TWICE, "3.5", True),
        (TWICE, "2.5", False),
        ({"versions": ["5.3.1"]}, "5.3.1", True),
        ({"versions": ["5.3.1"]}, "5.3", False),
    ],
)  # fmt: skip
def test_an_advisory_names_its_versions(
    tmp_path: Path, affected: dict[str, Any], version: str, found: bool
) -> None:
    database = Database.read(copy(tmp_path, advisory("PyYAML", **affected)))
    assert bool(database.findings({"pyyaml": version})) == found
    assert database.findings({"other": version}) == []


def test_what_was_withdrawn_and_other_ecosystems_do_not_count(tmp_path: Path) -> None:
    everything = events(("introduced", "0"))
    withdrawn = {**advisory("a", **everything), "withdrawn": "2026-01-01T00:00:00Z"}
    foreign = advisory("a", **everything)
    foreign["affected"][0]["package"]["ecosystem"] = "npm"
    assert Database.read(copy(tmp_path, withdrawn, foreign)).findings({"a": "1"}) == []


def test_a_copy_counts_for_two_weeks(tmp_path: Path) -> None:
    old = advisory("a", "2024-10-03T00:00:00.5Z")
    audit.check_age(Database.read(copy(tmp_path, old, advisory("a"))), NOW)
    with pytest.raises(UnknownError, match=r"too old to count: .* of 2024-10-03, 786 days ago"):
        audit.check_age(Database.read(copy(tmp_path, old)), NOW)


def test_an_old_copy_ends_with_2_and_what_it_names_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = "2024-10-03T00:00:00Z"
    harmless = copy(tmp_path, advisory("no-package-of-ours", old))
    assert audit.main(["--database", str(harmless)]) == 2
    assert "too old to count" in capsys.readouterr().err
    pinned = locked()["pyyaml"]
    named = copy(tmp_path, advisory("PyYAML", old, versions=[pinned]))
    assert audit.main(["--database", str(named)]) == 1
    assert f"pyyaml {pinned}: PYSEC-1, CVE-2026-1" in capsys.readouterr().out


def test_what_is_no_copy_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.zip").write_text("x")
    for path in (tmp_path / "x.zip", tmp_path / "none.zip"):
        assert audit.main(["--database", str(path)]) == 2
        assert str(path) in capsys.readouterr().err


def test_an_answer_that_names_the_vulnerable_one_counts() -> None:
    good = {"name": "pyyaml", "version": "6", "vulns": []}
    bad = {
        "name": "a",
        "version": "1",
        "vulns": [{"id": "X", "aliases": [], "fix_versions": ["2"]}],
    }
    assert understood(json.dumps({"dependencies": [good, KNOWN]})) == []
    [found] = understood(json.dumps({"dependencies": [bad, KNOWN]}))
    assert str(found) == "a 1: X (fixed in 2)"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("", "it said nothing"),
        ("{}", "it said nothing"),
        (json.dumps({"dependencies": []}), "does not know that pycrypto 2.6.1 is vulnerable"),
        (
            json.dumps(
                {"dependencies": [KNOWN, {"name": "a", "skip_reason": "not found on PyPI"}]}
            ),
            "knows nothing of 1 packages, such as a",
        ),
    ],
)
def test_a_service_that_knows_nothing_does_not_count_as_clean(answer: str, why: str) -> None:
    with pytest.raises(UnknownError, match=why):
        understood(answer)


def test_the_bill_names_what_users_install_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")  # `make check` does without it
    file = tmp_path / "bill.json"
    assert sbom.main([str(file)]) == 0
    bill = json.loads(file.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "squall"
    versions = {one["name"]: one["version"] for one in bill["components"]}
    assert versions.items() <= locked().items()
    assert {"aiohttp", "pyspark", "confluent-kafka", "cryptography"} <= versions.keys()
    assert versions.keys().isdisjoint({"pytest", "mypy", "ruff", "sphinx", "pip-audit"})
    named = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    kazoo = f"pkg:pypi/kazoo@{versions['kazoo']}"
    assert kazoo in named[bill["metadata"]["component"]["bom-ref"]]
    assert all(one.get("licenses") for one in bill["components"] if one["name"] == "aiohttp")


def test_what_is_not_locked_is_in_no_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setattr(sbom, "locked", lambda: {**locked(), "kazoo": "0.1"})
    with pytest.raises(sbom.BillError, match=r"kazoo .* is installed, and 0.1 is locked"):
        sbom.bill()
