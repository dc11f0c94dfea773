"""Invented people who tweet URLs and follow each other: the same everywhere for the same seed.

A few people have many followers and most have few, a few URLs are tweeted by many, and followers
overlap, so that counting distinct followers needs all of them.
"""

import random
from functools import lru_cache


class World:
    """`people` persons, `urls` URLs. Everything about each is drawn from the seed and its name, so
    that no task needs the whole world."""

    def __init__(self, seed=7, people=20_000, urls=500, tweeters_max=40, followers_max=1_000):
        self.seed = seed
        self.people = people
        self.urls = urls
        self.tweeters_max = tweeters_max
        self.followers_max = followers_max
        self.followers = lru_cache(maxsize=10_000)(self._followers)

    def url(self, number):
        return f"http://news.example/{number % self.urls}"

    def tweeters(self, url):
        """The people who have tweeted a URL; empty if there is no such URL."""
        head, _, number = url.rpartition("/")
        if head != "http://news.example" or not number.isdigit() or int(number) >= self.urls:
            return []
        draw = random.Random(f"{self.seed} url {url}")
        count = min(self.tweeters_max, int(draw.paretovariate(0.7)))
        return sorted({f"p{int(self.people * draw.random() ** 3)}" for _ in range(count)})

    def _followers(self, person):
        draw = random.Random(f"{self.seed} person {person}")
        count = min(self.followers_max, int(5 * draw.paretovariate(0.6)))
        return tuple(sorted({f"p{draw.randrange(self.people)}" for _ in range(count)}))

    def reach(self, url):
        """How many people have seen a URL: the direct computation."""
        return len({f for tweeter in self.tweeters(url) for f in self.followers(tweeter)})
