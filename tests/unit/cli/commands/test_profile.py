"""Where `storm profile` puts its copies."""

from squall_cli.cluster.worker_requests import WorkerRequest
from squall_cli.commands.profile import _Asked, _fetch, _print_functions
from squall_thrift import storm


def test_a_second_copy_keeps_the_first(tmp_path):
    folder, output = tmp_path / "logs", tmp_path / "copies"
    folder.mkdir()
    output.mkdir()
    for stamp in (1_700_000_000_000, 1_700_000_060_000):
        file = f"flamegraph-{stamp}.svg"
        (folder / file).write_text(f"graph {stamp}")
        request = WorkerRequest(
            "words-1-1", "words", "node", "host", 6700, "split",
            storm.ProfileAction.JPROFILE_START, file,
        )  # fmt: skip
        one = _Asked(request, folder)
        _fetch(one, "words", output, "flamegraph")
        assert one.error is None
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "words-host-6700-flamegraph-1700000000000.svg": "graph 1700000000000",
        "words-host-6700-flamegraph-1700000060000.svg": "graph 1700000060000",
    }


def test_functions_are_shown_only_of_samples_that_are_here(tmp_path, capsys):
    """Those of a worker on another machine say nothing about whether it did something."""
    _print_functions([], "split", None)
    assert capsys.readouterr() == ("", "")
    copy = tmp_path / "samples-1.txt"
    copy.write_text("# cpu\tcomponent\ttask\tsamples\tframes\non\tcount\t3\t5\trun (a.py:1)\n")
    _print_functions([copy], "split", None)
    assert "it did nothing" in "".join(capsys.readouterr())
    _print_functions([copy], "count", None)
    assert "run (a.py:1)" in capsys.readouterr().out
