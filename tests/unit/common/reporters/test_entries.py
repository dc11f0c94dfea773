"""Entries of reporters: of topologies and of daemons."""

from __future__ import annotations

import pytest

from squall_common.errors import SquallError
from squall_common.reporters.entries import Entry


def test_an_entry_says_which_programs_run_it() -> None:
    entry = {"class": "a.B", "daemons": ["nimbus", "drpc"]}
    assert Entry.parse(entry) is None
    assert Entry.parse(entry, key="k", program="supervisor") is None
    found = Entry.parse(entry, key="k", program="nimbus")
    assert found is not None
    assert (found.class_path, found.secs, found.key) == ("a.B", 10.0, "k")


def test_storms_names_are_known_and_jmx_is_refused_with_the_key() -> None:
    storms = "org.apache.storm.daemon.metrics.reporters."
    found = Entry.parse({"class": f"{storms}CsvPreparableReporter"}, key="k", program="nimbus")
    assert found is not None
    assert found.class_path == "squall.metrics.CsvReporter"
    with pytest.raises(SquallError, match=r"k: .*JMX needs a JVM"):
        Entry.parse({"class": f"{storms}JmxPreparableReporter"}, key="k", program="nimbus")
