"""Reach: how many people have seen a URL on a network of followers. Parallel, over DRPC.

    url ──▶ tweeters of it ──▶ followers of each ──▶ distinct ones, a share a task ──▶ their number

    storm jar   examples/reach reach
    storm drpc-client --function reach http://news.example/1 http://news.example/2
    storm local --local-ttl 0 examples/reach reach --ask 5

The network is generated from a seed (`followers.py`).
"""

import argparse

from followers import World

from squall import Bolt, submit_topology
from squall_drpc import BatchBolt, LinearDRPCTopologyBuilder, drpc_client


class GetTweeters(Bolt):
    """Emits the people who have tweeted a URL."""

    outputs = ["id", "tweeter"]

    def __init__(self, seed):
        self.seed = seed

    def prepare(self, conf, context):
        self.world = World(self.seed)

    def execute(self, tup):
        request, url = tup.values
        for tweeter in self.world.tweeters(url):
            self.emit([request, tweeter])


class GetFollowers(Bolt):
    """A person becomes the person's followers."""

    outputs = ["id", "follower"]

    def __init__(self, seed):
        self.seed = seed

    def prepare(self, conf, context):
        self.world = World(self.seed)

    def execute(self, tup):
        request, tweeter = tup.values
        for follower in self.world.followers(tweeter):
            self.emit([request, follower])


class PartialUniquer(BatchBolt):
    """Counts the distinct followers of its share."""

    outputs = ["id", "partial-count"]

    def prepare(self, conf, context):
        self.seen = set()

    def execute(self, tup):
        self.seen.add(tup["follower"])

    def finish_batch(self):
        self.emit([self.request_id, len(self.seen)])


class CountAggregator(BatchBolt):
    """Adds the shares up."""

    outputs = ["id", "reach"]

    def prepare(self, conf, context):
        self.total = 0

    def execute(self, tup):
        self.total += tup["partial-count"]

    def finish_batch(self):
        self.emit([self.request_id, self.total])


def linear_builder(function="reach", seed=7, attempts=1, parallelism=2):
    builder = LinearDRPCTopologyBuilder(function, attempts=attempts)
    builder.add_bolt(GetTweeters(seed), parallelism)
    builder.add_bolt(GetFollowers(seed), 2 * parallelism).shuffle()
    builder.add_bolt(PartialUniquer(), 2 * parallelism).fields("id", "follower")
    builder.add_bolt(CountAggregator(), parallelism).fields("id")
    return builder


def main():
    parser = argparse.ArgumentParser(prog="reach", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--attempts", type=int, default=1, help="tries before a request fails")
    parser.add_argument("--name", default="reach", help="name of the topology and of the function")
    parser.add_argument("--ask", type=int, default=0, help="ask for the reach of this many URLs")
    options = parser.parse_args()
    builder = linear_builder(
        options.name, options.seed, options.attempts, parallelism=options.parallelism
    )
    conf = {"topology.workers": options.workers}
    submit_topology(options.name, conf, builder.create_remote_topology())
    if options.ask:
        world = World(options.seed)
        with drpc_client() as client:
            for number in range(options.ask):
                url = world.url(number)
                print(f"{url} {client.execute(options.name, url)}")


if __name__ == "__main__":
    main()
