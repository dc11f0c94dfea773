from __future__ import annotations

import time

import pytest

from squall_common.daemon.output.redaction import redact_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2, next", "password=*****, next"),
        ("my.db-password.old : 'a b' c", "my.db-password.old : ***** c"),
        ('{"api_key": "a b", "port": 1}', '{"api_key": *****, "port": 1}'),
        ("x=token=abc;y", "x=token=*****;y"),
        ("to redis://user:p@ss@host:1/0", "to redis://user:*****@host:1/0"),
        ("http://host:80/a said: no", "http://host:80/a said: no"),
        ("the password of alice", "the password of alice"),
        ("x: NoCredentialsError: Unable to", "x: NoCredentialsError: Unable to"),
        ("a.TokenException: no=token=abc", "a.TokenException: no=token=*****"),
        ("token_error: abc", "token_error: *****"),
    ],
)
def test_secrets_that_can_be_recognized_are_hidden(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "pwd" * 20_000 + " =",
        "password" * 8_000 + " :",
        "a" * 64_000 + " ://x",
        "token " * 10_000 + "=",
        'token="' * 9_000,
        "a://b:" * 10_000,
    ],
    ids=lambda text: text[:8],
)
def test_no_text_holds_a_daemon_up(text: str) -> None:
    """Whoever writes configurations, lines of logs and messages of errors writes them."""
    began = time.process_time()
    redact_text(text)
    assert time.process_time() - began < 5.0
