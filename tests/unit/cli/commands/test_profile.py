"""Where `storm profile` puts its copies."""

from squall_cli.cluster.worker_requests import WorkerRequest
from squall_cli.commands.profile import _Asked, _fetch
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
