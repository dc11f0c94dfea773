"""What the benchmarks measure, run small in processes of their own."""

import dataclasses

import pytest
from bench import checkpoints, encryption, scale
from bench.runs import measure

from squall_engine import core


@pytest.mark.parametrize("name", ["tasks_10", "fan_out_16", "bytes_10"])
def test_what_scales_is_counted(name):
    """With a thousandth of the tuples."""
    (case,) = [case for case in scale.cases() if case.name == name]
    if name == "tasks_10":
        from bench.headline import word_count

        case = word_count(name, tasks=5, lines=50, rounds=1, core=core.NAME)
    else:
        from dataclasses import replace

        total = case.messages // 1000
        case = replace(
            case,
            arguments={**case.arguments, "total": total},
            tuples=case.tuples // 1000,
            messages=total,
            executed={name: n // 1000 for name, n in case.executed.items()},
        )
    report = measure([case], 1)
    assert report["cases"][name]["tuples_checked"] == case.tuples > 0
    assert "ratio_to_plain" not in report["cases"][name]


def test_an_encrypted_run_is_counted(monkeypatch):
    """Two real workers, with a thousandth of the tuples."""
    (case,) = [case for case in encryption.cases() if case.name == "bytes_100_encrypted"]
    case = dataclasses.replace(
        case, arguments={**case.arguments, "total": 200}, tuples=200, messages=200,
        executed={"sink": 200},
    )  # fmt: skip
    assert measure([case], 1)["cases"]["bytes_100_encrypted"]["tuples_checked"] == 200


@pytest.mark.parametrize("name", ["keys", "batch_keys", "words", "batches", "columns"])
def test_a_topology_is_counted_with_checkpoints(name, tmp_path):
    """With a small part of the tuples; without checkpoints the same bolts run in other subjects."""
    (case,) = [case for case in checkpoints.cases() if case.name == name]
    if case.keys:
        arguments = {**case.arguments, "total": 300, "keys": 100}
        small = {"tuples": 300, "keys": 100, "executed": {"counted": 300}, "messages": 300}
    else:
        arguments = {**case.arguments, "lines": 50, "rounds": 2}
        small = {"tuples": 800, "executed": {"split": 100, "count": 800}, "messages": 100}
    case = dataclasses.replace(case, arguments=arguments, **small)
    assert checkpoints.run(case, str(tmp_path)).start_secs > 0
    if name == "keys":
        assert checkpoints.run(case, None).checkpoint_secs == []
        again = checkpoints.run(case, str(tmp_path), executed={"counted": 0})
        assert again.figures == [{"keys": 100, "counted": 300}]
