"""The record of a topology as a znode: what was written late, or by two at once, is
refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from squall_common.cluster import paths
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.state.errors import StateDamagedError, StateStoreError
from squall_engine.epochs.messages import Name, Record
from squall_engine.epochs.record import RecordZnode, claim

PATH = paths.checkpoints("words", "s3://bucket/folder/")


async def place(ensemble: MemoryEnsemble) -> tuple[RecordZnode, MemoryStore]:
    store = MemoryStore(ensemble)
    await store.start()
    return RecordZnode(store, PATH, "words"), store


async def test_the_version_before_is_replaced_and_no_other() -> None:
    first, _ = await place(MemoryEnsemble())
    none = await first.read()
    assert none == Record(history=none.history)
    assert none.history.startswith("words@")
    one = Record(1, 1, 1)
    assert await first.replace(one)
    assert not await first.replace(one)
    assert not await first.replace(Record(3, 9, 9))
    two = Record(2, 1, 1, 4, Name(1, 4, "manifest"))
    assert await first.replace(two)
    assert await first.read() == two


async def test_each_claim_has_an_incarnation_of_its_own() -> None:
    ensemble = MemoryEnsemble()
    places = [(await place(ensemble))[0] for _ in range(5)]
    claimed = await asyncio.gather(*map(claim, places))
    assert sorted(claimed) == [1, 2, 3, 4, 5]
    assert (await places[0].read()).coordinator == 5


async def test_a_claim_keeps_the_last_epoch_and_ends_the_writes_of_those_before() -> None:
    ensemble = MemoryEnsemble()
    (old, _), (new, _) = await place(ensemble), await place(ensemble)
    incarnation = await claim(old)
    complete = replace(
        await old.read(), version=2, generation=1, epoch=4, manifest=Name(1, 4, "manifest")
    )
    assert await old.replace(complete)
    assert await claim(new) == incarnation + 1
    assert not await old.replace(replace(complete, version=3, epoch=5))
    assert await new.read() == replace(complete, version=3, coordinator=incarnation + 1)


async def test_an_answer_that_is_lost_leaves_the_outcome_open() -> None:
    ensemble = MemoryEnsemble()
    one, store = await place(ensemble)
    assert await one.replace(Record(1, 1, 1))
    ensemble.kill(store)
    with pytest.raises(StateStoreError, match="ZooKeeper does not answer"):
        await one.replace(Record(2, 1, 1))


async def test_a_record_that_was_removed_or_put_back_is_not_gone_on_from() -> None:
    one, store = await place(MemoryEnsemble())
    first = Record(1, 1, 1)
    assert await one.replace(first)
    data, stat = await store.get(PATH)
    assert await one.replace(Record(2, 1, 1, 4, Name(1, 4, "manifest")))
    await store.set(PATH, data, stat.version + 1)
    with pytest.raises(StateStoreError, match=r"has version 1 of .*, which had version 2"):
        await one.read()
    await store.delete(PATH, -1)
    with pytest.raises(StateStoreError, match="has version 0 of"):
        await one.replace(first)


async def test_a_damaged_record_is_named() -> None:
    one, store = await place(MemoryEnsemble())
    assert await one.replace(Record(1, 1, 1))
    data, _ = await store.get(PATH)
    for wrong in (b"", b"x" + data[1:], data[:-1] + bytes([data[-1] ^ 1])):
        await store.set(PATH, wrong)
        with pytest.raises(StateDamagedError, match="znode /checkpoints/words-"):
            await one.read()


async def test_a_claim_of_the_same_start_is_a_rollback_with_its_reason() -> None:
    one, _ = await place(MemoryEnsemble())
    await claim(one, "words-1-1", "a start has none")
    record = await one.read()
    assert (record.start, record.rollbacks, record.rollback_reason) == ("words-1-1", 0, "")
    for generation in (1, 2):
        seen = await one.read()
        assert await one.replace(replace(seen, version=seen.version + 1, generation=generation))
    await claim(one, "words-1-1", "a worker was started again")
    record = await one.read()
    assert record.rollbacks == 1
    assert record.rollback_reason == "a worker was started again"
    assert record.rollback_time_ms >= record.start_time_ms > 0
    await claim(one, "words-2-2", "not this")
    record = await one.read()
    assert (record.rollbacks, record.rollback_reason) == (0, "")


async def test_a_record_of_the_first_version_is_read() -> None:
    """As it was written before records knew starts and rollbacks."""
    stored = (
        "53515245430000015abe1a8686a776657273696f6e0caa67656e65726174696f6e03ab636f6f7264696e61746f7204"
        "a565706f636807a86d616e696665737483aa67656e65726174696f6e03a565706f636807a477686174a86d616e6966"
        "657374a7686973746f7279b2776f72647340303132333435363738396162"
    )
    one, store = await place(MemoryEnsemble())
    await store.create(PATH, bytes.fromhex(stored), make_parents=True)
    expected = Record(12, 3, 4, 7, Name(3, 7, "manifest"), "words@0123456789ab")
    assert await one.read() == expected
