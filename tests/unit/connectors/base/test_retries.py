from __future__ import annotations

from squall_connectors.base.backoff import Backoff
from squall_connectors.base.retries import Retries


def test_a_failed_record_is_due_after_its_wait() -> None:
    retries = Retries(Backoff(1.0, 1.0))
    due = retries.failed("a", now=10.0)
    assert 10.5 <= due <= 11.0
    assert retries.due(10.4) == []
    assert retries.due(due) == ["a"]
    assert retries.due(100.0) == []


def test_waits_grow_until_the_record_is_done() -> None:
    retries = Retries(Backoff(1.0, 8.0))
    waits = [retries.failed("a", 0.0) for _ in range(4)]
    assert 4.0 <= waits[3] <= 8.0
    retries.forget("a")
    assert retries.failed("a", 0.0) <= 1.0


def test_the_longest_overdue_comes_first_and_ids_need_no_order() -> None:
    retries = Retries(Backoff(1.0, 1.0))
    retries.failed(("topic", 1), 5.0)
    retries.failed("text", 0.0)
    assert retries.due(100.0) == ["text", ("topic", 1)]
    assert len(retries) == 0
