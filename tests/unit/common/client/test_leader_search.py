"""Which Nimbus is asked when, and what becomes of the connections that are not needed."""

import asyncio

import pytest

from squall_common.client.leader_search import LeaderSearch, NoLeaderError, UnreachableError

A, B, C = ("a", 1), ("b", 1), ("c", 1)


class FakeConnection:
    def __init__(self, address):
        self.address = address
        self.closed = False

    async def close(self):
        self.closed = True


class FakeNimbuses:
    """`answers` holds, for each address, what is said one time after the other: an address, an
    error, or None for no answer at all; the last is repeated."""

    def __init__(self, answers):
        self.answers = {address: list(said) for address, said in answers.items()}
        self.asked = []
        self.opened = []
        self.given_up = []

    async def ask(self, address):
        self.asked.append(address)
        said = self.answers[address]
        answer = said.pop(0) if len(said) > 1 else said[0]
        if answer is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.given_up.append(address)
                raise
        if isinstance(answer, Exception):
            raise answer
        connection = FakeConnection(address)
        self.opened.append(connection)
        return connection, answer

    async def find(self, *seeds):
        async with asyncio.timeout(20):
            connection, address = await LeaderSearch(seeds, self.ask, next_secs=0.01).run()
        assert connection.address == address
        assert [one for one in self.opened if not one.closed] == [connection]
        assert self.asked.count(address) >= 1
        return address


async def test_a_seed_that_leads_is_enough():
    nimbuses = FakeNimbuses({A: [A], B: [B]})
    assert await nimbuses.find(A, B) == A
    assert nimbuses.asked == [A]


async def test_the_one_that_a_seed_names_is_asked_before_the_next_seed():
    nimbuses = FakeNimbuses({A: [C], B: [C], C: [C]})
    assert await nimbuses.find(A, B) == C
    assert nimbuses.asked == [A, C]


async def test_the_next_seed_is_asked_while_the_first_one_hangs():
    nimbuses = FakeNimbuses({A: [None], B: [B]})
    assert await nimbuses.find(A, B) == B
    assert nimbuses.given_up == [A]


async def test_a_leader_that_hangs_is_left_when_another_one_is_elected():
    """The other Nimbus names it until its session has ended."""
    nimbuses = FakeNimbuses({A: [None], B: [A, A, A, B]})
    assert await nimbuses.find(A, B) == B
    assert nimbuses.asked == [A, B, B, B, B]


async def test_a_slow_seed_is_still_waited_for():
    b_is_asked = asyncio.Event()

    class Slow(FakeNimbuses):
        async def ask(self, address):
            if address == A:
                await b_is_asked.wait()
            else:
                b_is_asked.set()
            return await super().ask(address)

    nimbuses = Slow({A: [A], B: [None]})
    assert await nimbuses.find(A, B) == A
    assert nimbuses.given_up == [B]


async def test_a_seed_that_is_down_costs_no_wait():
    nimbuses = FakeNimbuses({A: [UnreachableError("A is down")], B: [B]})
    search = LeaderSearch([A, B], nimbuses.ask, next_secs=1000)
    async with asyncio.timeout(20):
        _, address = await search.run()
    assert address == B


async def test_each_answer_is_reported_when_there_is_no_leader():
    nimbuses = FakeNimbuses(
        {A: [UnreachableError("A is down")], B: [UnreachableError("no leader", answered=True)]}
    )
    with pytest.raises(NoLeaderError, match=r"^A is down; no leader$") as caught:
        await nimbuses.find(A, B)
    assert caught.value.answered


async def test_the_seed_that_named_a_leader_that_is_down_is_reported():
    nimbuses = FakeNimbuses({A: [UnreachableError("A is down")], B: [A]})
    with pytest.raises(NoLeaderError, match=r"^A is down \(the leader, as b:1 says\)$") as caught:
        await nimbuses.find(A, B)
    assert not caught.value.answered
    assert nimbuses.asked == [A, B]
    assert all(one.closed for one in nimbuses.opened)


async def test_two_seeds_that_name_each_other_do_not_cause_an_endless_search():
    """One has lost its way to ZooKeeper, the other waits for its session to end."""
    nimbuses = FakeNimbuses({A: [B], B: [A]})
    with pytest.raises(NoLeaderError, match="a:1 says that another one leads") as caught:
        await nimbuses.find(A, B)
    assert caught.value.answered
    assert len(nimbuses.asked) <= 6
    assert all(one.closed for one in nimbuses.opened)


async def test_an_election_between_two_answers_is_followed():
    nimbuses = FakeNimbuses({A: [B, A], B: [A]})
    assert await nimbuses.find(A, B) == A
    assert nimbuses.asked == [A, B, A]


async def test_a_search_that_is_given_up_leaves_nothing_open():
    nimbuses = FakeNimbuses({A: [None], B: [None]})
    search = asyncio.create_task(LeaderSearch([A, B], nimbuses.ask, next_secs=0.01).run())
    async with asyncio.timeout(20):
        while len(nimbuses.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
    assert sorted(nimbuses.given_up) == [A, B]
