"""The reviewed matrix, asked of a real UI and a real logviewer: no route forgets to ask, and what
is refused looks like what does not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.secured_site import Site, running

MATRIX = Path(__file__).parents[3] / "unit" / "common" / "security" / "matrix.txt"
# Column of the matrix -> who stands for it here.
USERS = {
    "stranger": None, "other": "frank", "reader": "carol", "logs": "dave", "owner": "alice",
    "group": "bob", "admin": "root",
}  # fmt: skip
LISTS = {
    "topology.groups": ["ops"],
    "topology.readonly.users": ["carol"],
    "logs.users": ["dave"],
}
ABSENT = "none-1-1700000000"
_BODIES = {"logconfig": '{"namedLoggerLevels": {}}'}
# What begins a process, or ends the topology, is asked by those alone who are refused.
_HEAVY = ("/reports/", "/kill/", "/profiling/", "/login", "/logout")


def rows(daemon: str) -> list[tuple[str, str, dict[str, bool]]]:
    """(method, path, the answer of each column)."""
    head, *lines = MATRIX.read_text().splitlines()
    found = []
    for line in lines:
        if line.startswith(f"{daemon} "):
            _, method, path, _, *cells = line.split()
            answers = {
                name: cell == "yes"
                for name, cell in zip(head.split(), cells, strict=True)
                if name in USERS
            }
            found.append((method, path, answers))
    assert len(found) > 5
    return found


def path_of(path: str, topology_id: str) -> str:
    parts = {
        "id": topology_id, "topo_id": topology_id, "topology": topology_id, "component": "words",
        "host_port": "127.0.0.1:6700", "wait_time": "0", "timeout": "1", "action": "enable",
        "spct": "10", "secs": "2", "path": "app.css", "other": "none", "filename": "stacks-1.txt",
        "host": "127.0.0.1", "route": "part", "page": "errors", "tasks": "1-1",
    }  # fmt: skip
    text = re.sub(r"\{(\w+)[^}]*\}", lambda one: parts[one[1]], path)
    name = text.rpartition("/")[2]
    if name in ("log", "part", "download", "search") or "deepSearch" in text:
        text += f"?file={topology_id}/6700/worker.log&search-string=secret"
    if name in ("daemonlog", "daemondownload"):
        text += "?file=nimbus.log"
    return text


async def ask(
    site: Site, daemon: str, method: str, path: str, token: str | None
) -> tuple[int, str]:
    """The status and the text of an answer; of a stream the status alone."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    data = _BODIES.get(path.rpartition("/")[2])
    async with site.session.request(
        method, site.url(path, logs=daemon == "logviewer"), headers=headers, data=data,
        allow_redirects=False,
    ) as answer:  # fmt: skip
        if answer.content_type == "text/event-stream":
            return answer.status, ""
        return answer.status, await answer.text()


@pytest.mark.parametrize("daemon", ["ui", "logviewer"])
async def test_every_route_answers_as_the_matrix_says(daemon: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates").create()
    wrong = []
    named = {"logs.users": ["dave"]}
    async with running(tmp_path / "site", certificates, logviewer_conf=named) as site:
        topology_id = await site.submit("alice", "count", LISTS)
        (site.artifacts.parent / "nimbus.log").write_text("nimbus leads\n")
        tokens = {
            column: None if user is None else await site.token(user)
            for column, user in USERS.items()
        }
        for method, route, answers in rows(daemon):
            for column, token in tokens.items():
                allowed = answers[column]
                if allowed and any(part in route for part in _HEAVY):
                    continue
                if column == "reader" and "/profiling/" in route:
                    continue  # is told, as it may know, that there is no such worker here
                status, text = await ask(site, daemon, method, path_of(route, topology_id), token)
                refused = status in (401, 403) or "is not allowed" in text
                if column == "stranger" and not allowed:
                    as_said = status == 401
                elif allowed:
                    as_said = not refused and "is not alive" not in text
                else:  # as if it did not exist
                    absent = await ask(site, daemon, method, path_of(route, ABSENT), token)
                    as_said = refused or (status, text.replace(topology_id, ABSENT)) == absent
                if not as_said:
                    may = "may" if allowed else "may not"
                    wrong.append(f"{column} {may} {method} {route}: {status} {text[:100]}")
    assert not wrong, "\n".join(wrong)
