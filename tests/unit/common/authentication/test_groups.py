"""Groups are kept, served stale while their source fails, and then not at all."""

from __future__ import annotations

import getpass
import grp
import os

from squall_common.authentication.groups import Groups, fixed_groups, system_groups


class Source:
    def __init__(self) -> None:
        self.fails = False
        self.asked = 0

    def __call__(self, user: str) -> frozenset[str]:
        self.asked += 1
        if self.fails:
            raise OSError("the directory is away")
        return frozenset({"ops"})


async def test_an_answer_is_kept_for_two_minutes_and_served_stale_for_five() -> None:
    source, clock = Source(), {"now": 0.0}
    groups = Groups(source, lambda: clock["now"])
    for clock["now"] in (0.0, 119.0):
        assert await groups.of("alice") == {"ops"}
    assert source.asked == 1
    source.fails = True
    clock["now"] = 400.0
    assert await groups.of("alice") == {"ops"}
    clock["now"] = 421.0
    assert await groups.of("alice") == frozenset()
    source.fails = False
    assert await groups.of("alice") == {"ops"}


async def test_a_user_that_was_never_seen_has_no_groups_while_the_source_fails() -> None:
    source = Source()
    source.fails = True
    assert await Groups(source).of("alice") == frozenset()


def test_fixed_groups_are_those_of_the_table() -> None:
    groups = fixed_groups({"alice": ["dev", "ops"]})
    assert groups("alice") == {"dev", "ops"}
    assert groups("bob") == frozenset()


def test_system_groups_are_those_of_the_operating_system() -> None:
    assert grp.getgrgid(os.getgid()).gr_name in system_groups(getpass.getuser())
    assert system_groups("no-such-user; id") == frozenset()
