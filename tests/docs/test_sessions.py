"""What a reader types works, and prints what the page shows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster
from tests.support.pages import DOCS, ROOT, Session, blocks, matches, pages, reader_environment


def _has_session(page: Path) -> bool:
    return any(block.language == "console" and block.not_run is None for block in blocks(page))


PAGES = [page for page in pages() if page.is_relative_to(DOCS) and _has_session(page)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("dev"), supervisors=2, slots=4) as cluster:
        yield cluster


def _remove_topologies(cluster: DevCluster) -> None:
    """What a page that failed has left: the next try, and other pages, begin with none."""
    for name in cluster.topologies():
        # It may be on its way out already.
        cluster.storm("kill", name, "-w", "0", check=False)
        cluster.wait_gone(name)


@pytest.mark.timeout(450)  # a minute on a free core
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    env = reader_environment(Path(sys.executable).parent, tmp_path)
    if "<!-- cluster -->" in page.read_text():
        running: DevCluster = request.getfixturevalue("cluster")
        _remove_topologies(running)
        env["STORM_CONF_DIR"] = str(running.conf_file.parent)
    folder = tmp_path / "reader"
    folder.mkdir()
    assert Session(folder, env).follow(page) > 0


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("acked 3", "acked 3", True),
        ("acked 3", "acked 300", False),
        ("3 passed in 0.71s", "3 passed in 12.5s", True),
        ("3 passed in 0.71s", "4 passed in 0.71s", False),
        ("uploading reader.zip, 11.1 kB ...", "uploading reader.zip, 9 kB ...", True),
        ("at 127.0.0.1:6627", "at 127.0.0.1:39421", True),
        ("ok 2 7s words-1-1795499762", "ok 2 36s words-2-1800000000", True),
        ("ok 2 7s words-1-1795499762", "ok 1 36s words-2-1800000000", False),
        ("a\n...\nz", "a\nb\nc\nz\n", True),
        ("words ACTIVE ... x", "words   ACTIVE  yes  no  x", True),
        ("acked 3", "failed 3", False),
        ("a", "a\nb", False),
        ("a\n...\nz", "a\nb\n", False),
    ],
)
def test_output_is_compared_but_for_times_sizes_addresses_and_ids(
    expected: str, actual: str, same: bool
) -> None:
    assert matches(expected, actual) is same


def test_a_page_says_whose_numbers_vary() -> None:
    assert matches("acked 3, 0.5 MiB", "acked 300, 17 MiB", numbers_vary=True)
    assert not matches("acked 3", "failed 3", numbers_vary=True)
    vary = {block.where: block.numbers_vary for page in PAGES for block in blocks(page)}
    assert sum(why is not None for why in vary.values()) == 4


def test_pages_with_sessions_are_found() -> None:
    assert ROOT / "docs/tutorials/first-topology.md" in PAGES
