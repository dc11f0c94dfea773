"""What a worker inherits."""

import os
import site
from pathlib import Path

from squall_supervisor.launch.environment import import_path, worker_environment

OWN = {"PATH": "/bin", "HOME": "/home/storm", "LC_ALL": "C", "AWS_SECRET": "s", "PYTHONHOME": "/x"}


def environment(topology: dict[str, object]) -> dict[str, str]:
    return worker_environment(
        OWN,
        topology,
        import_path=["/squall/common", "/squall/worker"],
        temporary_dir=Path("/w/tmp"),
        marks={"SQUALL_WORKER_ID": "w1"},
    )


def test_only_named_variables_are_passed_on() -> None:
    assert environment({}) == {
        "PATH": "/bin",
        "HOME": "/home/storm",
        "LC_ALL": "C",
        "TMPDIR": "/w/tmp",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": "/squall/common:/squall/worker",
        "SQUALL_WORKER_ID": "w1",
    }


def test_the_topology_adds_and_overrides_but_not_what_marks_a_worker() -> None:
    made = environment({"PATH": "/opt/bin", "N": 7, "SQUALL_WORKER_ID": "w2"})
    assert (made["PATH"], made["N"], made["SQUALL_WORKER_ID"]) == ("/opt/bin", "7", "w1")


def test_the_topologys_python_path_comes_after_ours() -> None:
    made = environment({"PYTHONPATH": "/theirs:/squall/common"})
    assert made["PYTHONPATH"] == "/squall/common:/squall/worker:/theirs"


def test_invalid_variable_names_are_left_out() -> None:
    made = environment({"": "x", "A=B": "x", "C\0": "x", "D": "x\0y"})
    assert made == environment({})


def test_our_packages_are_importable_and_site_folders_are_left_out() -> None:
    folders = import_path({"PYTHONPATH": os.pathsep.join(["relative", site.getsitepackages()[0]])})
    assert os.path.abspath("relative") in folders
    assert site.getsitepackages()[0] not in folders
    for package in ("squall", "squall_common", "squall_engine", "squall_thrift", "squall_worker"):
        assert any((Path(folder) / package).is_dir() for folder in folders)
