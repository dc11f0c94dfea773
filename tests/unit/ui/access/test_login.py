"""Where a login leads."""

from __future__ import annotations

import pytest

from squall_ui.access.login import local_path


@pytest.mark.parametrize(
    "where",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil", "", "x", "/a\nb",
     "/\t/evil.example", "/" + "a" * 3_000],
)  # fmt: skip
def test_a_login_leads_to_no_other_site(where: str) -> None:
    assert local_path(where) == "/"


def test_a_login_leads_back_to_the_page() -> None:
    assert local_path("/topology/x?window=600") == "/topology/x?window=600"
