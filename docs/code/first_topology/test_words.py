from squall.testing import BoltTest, TopologyTest
from words import Split, build


def test_a_sentence_becomes_its_words():
    with BoltTest(Split(), {"sentences": ["sentence"]}) as test:
        done = test.execute(["the cow jumped"])
        assert [e.values for e in done.emitted] == [["the"], ["cow"], ["jumped"]]
        assert done.acked


def test_every_word_is_counted():
    with TopologyTest(build(repeat=2)) as test:
        test.run_until_idle()
        counts = [e.values for e in test.emitted("count")]
    assert len(counts) == 2 * 20
    assert ["the", 6] in counts  # three times in the sentences, and each comes twice
