"""Two clusters that sign; made once, since keys cost time."""

from __future__ import annotations

import pytest
from tests.support.signers import Signers, make_signers


@pytest.fixture(scope="session")
def prod() -> Signers:
    return make_signers("prod")


@pytest.fixture(scope="session")
def foreign() -> Signers:
    """Another cluster with the same name, and a CA of its own."""
    return make_signers("prod")
