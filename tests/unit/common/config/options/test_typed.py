"""Options are read through their types: no code outside `config` looks one up by its key."""

from __future__ import annotations

from tests.support.option_reads import ROOT, key_constants, looks_up_by_key, lookups, modules


def test_no_option_is_looked_up_by_its_key() -> None:
    sources = {
        path: path.read_text(encoding="utf-8") for path in modules() if not looks_up_by_key(path)
    }
    shared: dict[str, str] = {}  # by name, wherever it is imported to
    for source in sources.values():
        shared |= key_constants(source)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {key}"
        for path, source in sources.items()
        for line, key in lookups(source, shared)
    ]
    assert found == [], "read these as fields of squall_common.config.options.typed"


def test_lookups_are_found_in_all_their_forms() -> None:
    source = """
KEY = "topology.workers"
OTHER = "mine"
conf["topology.debug"]
conf.get("topology.tasks", 1)
conf.pop(KEY)
conf[shared.NAME]
conf["mine"], conf[OTHER], conf.get("mine")
conf["topology.debug"] = True
{"topology.debug": True}
"""
    names = {**key_constants(source), "NAME": "topology.version"}
    assert [key for _, key in lookups(source, names)] == [
        "topology.debug", "topology.tasks", "topology.workers", "topology.version",
    ]  # fmt: skip
