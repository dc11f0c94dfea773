import sqlite3
from contextlib import closing

from counted_words import build

from squall import LocalCluster


def test_a_second_run_counts_on(tmp_path):
    lines, database = tmp_path / "lines.txt", tmp_path / "words.db"
    conf = {
        "topology.checkpoint.interval.secs": 0.1,
        "topology.state.url": str(tmp_path / "checkpoints"),
    }

    def counts():
        with closing(sqlite3.connect(database)) as connection:
            return dict(connection.execute("SELECT word, count FROM counts"))

    for total in (2, 3):
        with lines.open("a") as file:
            file.write("the cow\nthe moon\n" if total == 2 else "the end\n")
        with LocalCluster() as cluster:
            cluster.submit_topology("words", conf, build(str(lines), str(database)))
            cluster.wait_until(lambda total=total: counts().get("the") == total)
    assert counts() == {"the": 3, "cow": 1, "moon": 1, "end": 1}
