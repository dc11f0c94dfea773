"""What errors show of a connection string."""

from __future__ import annotations

import pytest

from squall_connectors.postgresql.connection import shown_server


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://shop:p4ss@db.example:6432/orders?sslmode=require", "db.example:6432"),
        ("host=db.example user=shop password=p4ss", "db.example:5432"),
        ("postgresql://shop:p@a,b:1,c/orders", "a:5432,postgresql://b:1,postgresql://c:5432"),
        ("host=a,b port=1", "a:1,postgresql://b:1"),
        ("host=/run/postgresql dbname=orders", "/run/postgresql:5432"),
    ],
)
def test_the_servers_are_shown_without_user_and_password(dsn: str, shown: str) -> None:
    assert shown_server(dsn) == f"postgresql://{shown}"


@pytest.mark.parametrize("dsn", ["dbname=orders", "no connection string"])
def test_without_a_host_nothing_is_shown(dsn: str) -> None:
    assert shown_server(dsn) is None
