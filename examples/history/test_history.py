import json
from collections import Counter

import join
import pytest
import stream_words
import top_words
import words
from squall.testing import TopologyTest


def records(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("program", [words, stream_words], ids=["bolts", "streams"])
def test_each_word_is_counted_up_to_its_plain_count(program, tmp_path):
    texts = ["to be or not to be", "that is the question", "To be"]
    source = records(tmp_path / "in.jsonl", *({"text": text} for text in texts))
    with TopologyTest(program.build(source, None)) as test:
        test.run_until(lambda: len(test.acked("records")) == len(texts))
        counts = sorted(e.values for e in test.emitted("count"))
    plain = Counter(word for text in texts for word in text.lower().split())
    assert counts == sorted([word, n] for word in plain for n in range(1, plain[word] + 1))


def test_a_window_has_its_most_frequent_words(tmp_path):
    source = records(
        tmp_path / "in.jsonl",
        {"time": 61.5, "text": "to be or not to be"},
        {"time": 5, "text": "be"},
    )
    with TopologyTest(top_words.build(source, None)) as test:
        test.run_until(lambda: len(test.acked("records")) == 2)
        test.run_for(2)  # a tick
        rows = [e.values for e in test.emitted("rank")]
    top = {(window, rank): (word, count) for window, rank, word, count in rows}
    assert [top[60, rank] for rank in (1, 2, 3)] == [("be", 2), ("to", 2), ("not", 1)]
    assert top[0, 1] == ("be", 1)


def test_an_order_finds_its_customer_whichever_came_first(tmp_path):
    orders = records(
        tmp_path / "orders.jsonl",
        {"order": 7, "customer": "c1"},
        {"order": 8, "customer": "c2"},
        {"order": 9, "customer": "c1"},
    )
    customers = records(tmp_path / "customers.jsonl", {"customer": "c1", "name": "Ann"})
    with TopologyTest(join.build(orders, customers, None)) as test:
        test.run_until(lambda: len(test.acked("orders") + test.acked("customers")) == 4)
        joined = sorted(e.values for e in test.emitted("join"))
    assert joined == [[7, "c1", "Ann"], [9, "c1", "Ann"]]
