import pytest
from followers import World
from reach import linear_builder
from squall.testing import TopologyTest
from squall_drpc import LocalDRPC


@pytest.fixture(scope="module")
def ask():
    """Asks the topology, on a virtual clock, for the reach of each URL, all at once."""

    def answers(urls):
        drpc = LocalDRPC()
        with TopologyTest(linear_builder().create_local_topology(drpc)) as test:
            asked = [drpc.submit("reach", url) for url in urls]
            test.run_until(lambda: all(answer.done() for answer in asked))
            return [answer.result() for answer in asked]

    return answers


def directly(url):
    world = World(seed=7)
    return len({person for who in world.tweeters(url) for person in world.followers(who)})


def test_answers_are_those_of_a_direct_computation(ask):
    urls = [World().url(number) for number in range(20)]
    expected = [directly(url) for url in urls]
    assert max(expected) > 1_000
    assert ask(urls) == [str(count) for count in expected]


def test_nobody_has_seen_a_url_that_nobody_has_tweeted(ask):
    assert ask(["http://elsewhere.example/1"]) == ["0"]


def test_followers_of_several_people_count_once():
    world = World()
    url = max((world.url(number) for number in range(50)), key=lambda url: len(world.tweeters(url)))
    with_repeats = sum(len(world.followers(who)) for who in world.tweeters(url))
    assert directly(url) < with_repeats
