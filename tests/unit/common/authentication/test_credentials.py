"""The token that a client shows, from its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.signers import make_signers

from squall_common.authentication.credentials import ClientCredentials
from squall_common.authentication.files import Trusted
from squall_common.security.certificates import Authorities
from squall_common.security.identity import Role
from squall_thrift.serving.authentication import RefusedError


def test_a_file_that_is_too_long_for_a_token_is_refused_not_cut(tmp_path: Path) -> None:
    trusted = Trusted("prod", "ca.pem", Authorities(make_signers("prod").ca.certificate), None)
    file = tmp_path / "token"
    file.touch(mode=0o600)
    credentials = ClientCredentials(trusted, Role.NIMBUS, file, None)
    file.write_text("t" * 16_384)
    assert credentials.http_headers() == {"Authorization": "Bearer " + "t" * 16_384}
    file.write_text("t" * 16_385)
    with pytest.raises(RefusedError, match="has more than 16384 bytes"):
        credentials.http_headers()
