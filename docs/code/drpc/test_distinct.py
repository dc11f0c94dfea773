import pytest
from distinct import build
from squall import LocalCluster
from squall_drpc import LocalDRPC


@pytest.mark.parametrize(
    ("text", "answer"), [("to be or not to be", "4"), ("a a a", "1"), ("", "0")]
)
def test_words_are_counted_once(text, answer):
    drpc = LocalDRPC()
    with LocalCluster() as cluster:
        cluster.submit_topology("distinct", {}, build().create_local_topology(drpc))
        assert drpc.execute("distinct", text) == answer
