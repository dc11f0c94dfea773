"""Files of credentials: lines of key=value, and nothing that only looks like them."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_common.config.properties import read_credentials
from squall_common.errors import SquallError


@pytest.mark.parametrize(
    "text",
    [
        '{"password": "hunter2"}',
        '{\n  "password": "hunter2"\n}\n',
        '[["password", "hunter2"]]',
        '{"password": "hunter2",',
    ],
)
def test_a_file_of_json_is_refused_rather_than_read_as_lines(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secrets.json"
    file.write_text(text)
    with pytest.raises(SquallError, match="holds JSON, not lines of key=value") as caught:
        read_credentials(file)
    assert "hunter2" not in str(caught.value)


def test_lines_are_read_also_if_a_value_is_json(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text('account = {"user": "ann"}\n')
    assert read_credentials(file) == {"account": '{"user": "ann"}'}


def test_an_empty_file_has_no_credentials(tmp_path: Path) -> None:
    file = tmp_path / "none.properties"
    file.write_text("# none\n")
    assert read_credentials(file) == {}
