from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from squall import StreamBuilder
from squall.testing import FeederSpout
from squall.windows import session, tumbling


@dataclass(frozen=True)
class Order:
    user: str
    cents: int
    at: int


class Orders(FeederSpout):
    outputs = ["user", "cents", "at"]


def at_least(cents, order):
    return order.cents >= cents


def is_small(order):
    return order.cents < 1_000


def spent(total, order):
    return total + order.cents


def add(a, b):
    return a + b


def first_order(user, order, state):
    if state.get() is None:
        state.put(True)
        yield f"welcome, {user}"


def build():
    builder = StreamBuilder(parallelism=2)
    orders = builder.source("orders", Orders(), of=Order)
    orders = orders.filter(partial(at_least, 1)).event_time(attrgetter("at"), lag_secs=5)

    by_user = orders.key_by(attrgetter("user")).named("by_user", parallelism=4)
    by_user.process(first_order).named("welcome").print()
    by_user.aggregate(int, spent).named("spent").output("totals", ["user", "cents"])
    by_user.window(session(gap_secs=1800)).aggregate(int, spent, add).output("visits")

    small, large = orders.branch(is_small, bool)
    small.window(tumbling(secs=60)).count().output("small_orders")
    large.output("large_orders", ["user", "cents", "at"])
    return builder
