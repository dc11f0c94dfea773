from __future__ import annotations

from squall_connectors.base.cache import Cache


def test_a_value_is_kept_for_its_time() -> None:
    now = [0.0]
    cache: Cache[str] = Cache(10.0, 5, lambda: now[0])
    cache.put("a", "value")
    now[0] = 10.0
    assert cache.get("a") == "value"
    now[0] = 10.1
    assert cache.get("a") is None
    assert len(cache) == 0


def test_the_oldest_goes_first() -> None:
    cache: Cache[int] = Cache(10.0, 2, lambda: 0.0)
    for number in (1, 2, 1, 3):
        cache.put(number, number)
    assert [cache.get(number) for number in (1, 2, 3)] == [1, None, 3]


def test_no_time_or_size_keeps_nothing() -> None:
    for cache in (Cache[int](0.0, 5), Cache[int](5.0, 0)):
        cache.put("a", 1)
        assert cache.get("a") is None
