"""When Nimbus is asked for the register of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates

from squall_common.authentication.followed import REFRESH_SECS, FollowedRevocations
from squall_common.security.identity import Role


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


async def test_on_demand_nimbus_is_asked_when_a_token_is_shown_and_not_again_soon(
    tmp_path: Path, certificates: Certificates
) -> None:
    """A thousand supervisors whose pages are read with certificates do not call it."""
    asked = []

    async def fetch(known: int) -> str:
        asked.append(known)
        return ""

    found = FollowedRevocations(
        certificates.trusted(Role.SUPERVISOR, "node-1"),
        tmp_path,
        revoked=str(certificates.authority.revoked),
        fetch=fetch,
        on_demand=True,
    )
    found.open()
    found.start()
    try:
        for _ in range(3):
            await found.ready()
        assert len(asked) == 1
        found._ask_again_at -= REFRESH_SECS  # ten seconds later
        await found.ready()
        assert len(asked) == 2
    finally:
        await found.close()


async def test_a_nimbus_that_is_away_is_asked_once_in_a_while(
    tmp_path: Path, certificates: Certificates
) -> None:
    asked = []

    async def fetch(known: int) -> str:
        asked.append(known)
        raise ConnectionError

    found = FollowedRevocations(
        certificates.trusted(Role.SUPERVISOR, "node-1"),
        tmp_path,
        revoked=None,
        fetch=fetch,
        on_demand=True,
    )
    found.open()
    for _ in range(3):
        await found.ready()
    assert (len(asked), found.tokens()) == (1, None)  # no token counts
