"""What `make quick` and `make check` run."""

from tests.quick import PLAIN, ROOT, changed_tests
from tests.run_all import CHECK, FAST, STAGES


def test_every_listed_test_is_there() -> None:
    assert [path for path in PLAIN if not (ROOT / path).exists()] == []
    assert [path for path in FAST if not (ROOT / path.removeprefix("--ignore=")).exists()] == []


def test_changed_unit_tests_are_run_too() -> None:
    listed = (
        "README.md\ntests/unit/nimbus/views/test_health.py\ntests/unit/nimbus/blobs/test_store.py\n"
        "tests/component/squall/test_entry.py\ntests/unit/conftest.py\ntests/chaos/test_storm.py\n"
    )
    assert changed_tests(listed) == ["tests/unit/nimbus/blobs/test_store.py"]


def test_a_check_takes_three_minutes_at_most() -> None:
    assert sum(stage.budget_secs for stage in CHECK) <= 180


def test_stages_that_a_check_leaves_out_are_in_the_full_run() -> None:
    (unit,) = [stage for stage in STAGES if stage.name == "unit"]
    assert {"tests/unit", "tests/property"} <= set(unit.commands[0])


def test_every_folder_of_tests_is_in_a_stage() -> None:
    run = {part for stage in STAGES for command in stage.commands for part in command}
    tests = (path.relative_to(ROOT).parts for path in ROOT.glob("tests/*/**/test_*.py"))
    assert {"/".join(parts[:2]) for parts in tests} <= run
