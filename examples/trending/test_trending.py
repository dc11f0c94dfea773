import json

from squall.testing import BoltTest, TopologyTest
from trending import WORDS, Scores, Tags, build


def test_a_post_has_any_number_of_tags():
    with BoltTest(Tags(), {"posts": ["text"]}) as test:
        done = test.execute(["#Rain and #storm, no #"])
        assert [e.values for e in done.emitted] == [["rain"], ["storm"]]
        assert done.acked
        none = test.execute(["nothing"])
        assert none.emitted == []
        assert none.acked


def test_a_score_is_halved_after_its_half_life():
    with BoltTest(Scores(top=1, half_life=5), {"tags": ["tag"]}) as test:
        for _ in range(8):
            test.execute(["rain"])
        ticks = test.run_for(5.5)
        (tag, score) = ticks[-1].values[1][0]
        assert tag == "rain"
        assert 3.9 < score < 8 / 2**0.79


def test_what_is_forgotten_takes_no_memory():
    scores = Scores(top=1, half_life=1)
    with BoltTest(scores, {"tags": ["tag"]}) as test:
        test.execute(["rain"])
        test.run_for(10)
        assert scores.scores == {}


def test_the_tag_in_fashion_is_on_top(tmp_path):
    path = tmp_path / "top.jsonl"
    with TopologyTest(build(str(path), total=20_000)) as test:
        test.run_for(5)
        assert not test.errors
    last = json.loads(path.read_text().splitlines()[-1])
    assert len(last) == 3
    assert {tag for tag, _ in last} <= set(WORDS)
    scores = [score for _, score in last]
    assert scores == sorted(scores, reverse=True)
