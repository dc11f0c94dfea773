"""Whether a topology's workers encrypt."""

from __future__ import annotations

import pytest

from squall_common.security.curve import CURVE
from squall_common.topology.encryption import encrypts, has_key


@pytest.mark.parametrize(
    ("mode", "expected"), [("auto", True), (True, True), (False, False), (None, False)]
)
def test_a_worker_encrypts_wherever_it_is_bound_unless_it_is_turned_off(
    mode: object, expected: bool
) -> None:
    """On loopback too: other users of the host are strangers. None: a topology of before there
    were keys."""
    conf = {} if mode is None else {CURVE: mode}
    assert encrypts(conf) is expected
    assert has_key(conf) is expected


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({CURVE: "perhaps"}, True),
        ({CURVE: False, "topology.worker.timeout.secs": 10**400}, False),
        ({"topology.worker.timeout.secs": 10**400}, False),
    ],
)
def test_a_damaged_configuration_raises_nothing(conf: dict[str, object], expected: bool) -> None:
    assert has_key(conf) is expected
