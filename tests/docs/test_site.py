"""The site builds without a warning, and none of its links is dead."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.support.axe import violations
from tests.support.browser import CHROMIUM, Browser
from tests.support.pages import DOCS, ROOT, pages
from tests.support.thirdparty import axe_script, unavailable

# More than a minute of CPU: on two cores with a load of 20, more than six of the clock.
_BUILD_SECS = 900
pytestmark = pytest.mark.timeout(_BUILD_SECS + 60)

PAGE_BYTES_MAX = 400_000  # docs/configuration.md is by far the longest


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            "-E",
            "-W",
            "--keep-going",
            "-q",
            "-b",
            "html",
            "-d",
            str(folder / "doctrees"),
            str(DOCS),
            str(folder / "html"),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


class _Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "img") and "src" in found:
            self.loads.append(found["src"])
        if tag == "link" and found.get("rel") == "stylesheet":
            self.loads.append(found["href"])


def _read(site: Path) -> dict[Path, _Page]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = found[path] = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    return found


def test_no_link_is_dead(site: Path) -> None:
    pages = _read(site)
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = Path(os.path.normpath(path.parent / unquote(parts.path)))
            if not target.exists() or (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].ids
            ):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


def test_a_page_needs_no_other_host(site: Path) -> None:
    foreign = {
        f"{path.relative_to(site)}: {link}"
        for path, page in _read(site).items()
        for link in page.loads
        if urlsplit(link).netloc
    }
    assert foreign == set()


def test_the_search_index_is_a_script(site: Path) -> None:
    """A browser loads it from a folder, too: search needs no server."""
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    assert text.startswith("Search.setIndex(")
    assert "executebatch" in text.lower() or "execute_batch" in text


def test_every_table_begins_with_its_header() -> None:
    """A row above the header makes it all one paragraph, without a warning."""
    problems = []
    for page in pages():
        before = ""
        code = False
        lines = page.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if line.lstrip().startswith("```"):
                code = not code
            begins = line.startswith("|") and not before.startswith("|")
            before = line
            if begins and not code and not lines[number].startswith(("|-", "| -", "|:")):
                problems.append(f"{page.relative_to(ROOT)}:{number}: {line[:40]}")
    assert problems == []


def test_pages_are_small(site: Path) -> None:
    large = {
        str(path.relative_to(site)): path.stat().st_size
        for path in site.rglob("*.html")
        if path.stat().st_size > PAGE_BYTES_MAX
    }
    assert large == {}


def test_the_reference_has_every_command_and_public_name(site: Path) -> None:
    import squall
    import squall_drpc
    from squall_cli.main import SECTIONS
    from squall_common.telemetry.samples import WORKER_FAMILIES
    from squall_ui.rest.api import ENDPOINTS

    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    missing = [
        name for names in SECTIONS.values() for name in names if f">storm {name}<" not in commands
    ]
    assert missing == []
    api = "".join(
        p.read_text(encoding="utf-8") for p in (site / "reference" / "api").rglob("*.html")
    )
    names = [f"squall.{name}" for name in squall.__all__]
    names += [f"squall_drpc.{name}" for name in squall_drpc.__all__]
    kafka, base = importlib.import_module("squall_connectors.kafka"), "squall_connectors.base"
    names += [f"squall_connectors.kafka.{name}" for name in kafka.__all__]
    names += [f"{base}.{name}" for name in importlib.import_module(base).__all__]
    assert [name for name in names if f'id="{name}"' not in api] == []
    flux = (site / "reference" / "flux-keys.html").read_text(encoding="utf-8")
    assert [key for key in ("workerHooks", "constructorArgs", "streamId") if key not in flux] == []
    rest = (site / "reference" / "rest.html").read_text(encoding="utf-8")
    routes = [f"{one.method} /api/v1{one.path}" for one in ENDPOINTS]
    assert [route for route in routes if f">{route}<" not in rest] == []
    metrics = (site / "reference" / "metrics.html").read_text(encoding="utf-8")
    families = [*WORKER_FAMILIES, "squall_topology_health", "squall_worker_exits", "squall_build"]
    assert [name for name in families if f">{name}<" not in metrics] == []


SEARCHED = {
    "fields grouping": "how-to/group-tuples.html",
    "topology.max.spout.pending": "configuration.html",
    "execute_batch": "how-to/choose-how-a-bolt-runs.html",
}


async def test_words_typed_into_the_search_lead_to_their_page(site: Path, tmp_path: Path) -> None:
    """From a folder, without a server, and by keyboard. (There, browsers let a page read no other
    one, so results have no excerpts.)"""
    if CHROMIUM is None:
        unavailable("there is no Chromium on this machine")
    async with Browser.start(tmp_path) as browser:
        page = await browser.page()
        for words, wanted in SEARCHED.items():
            await page.open((site / "tutorials" / "index.html").as_uri())
            await page.wait("!!document.querySelector('input[name=q]')")
            await page.run("document.querySelector('input[name=q]').focus()")
            await page.call("Input.insertText", text=words)
            await page.key("Enter")
            links = "[...document.querySelectorAll('#search-results li > a')]"
            link = f"{links}.find((one) => one.href.split(/[?#]/)[0].endsWith('{wanted}'))"
            await page.wait(f"!!{link}", 60)
            await page.run(f"{link}.click()")
            shown = f"document.body?.innerText.toLowerCase().includes('{words.split()[0]}')"
            await page.wait(f"location.pathname.endsWith('{wanted}') && {shown}", 60)
        # A word that is on no page.
        await page.open((site / "search.html").as_uri() + "?q=xyzzyplugh")
        await page.wait("document.body.innerText.includes('did not match any documents')", 60)


LOOKED_AT = (
    "index", "tutorials/first-topology", "how-to/from-storm-java", "concepts/guarantees",
    "configuration", "reference/commands", "how-to/hooks", "search",
)  # fmt: skip


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_pages_break_no_rule_of_accessibility(site: Path, tmp_path: Path, dark: bool) -> None:
    """No violation of WCAG 2.2 A or AA that axe-core finds, and nothing wider than the window."""
    if CHROMIUM is None:
        unavailable("there is no Chromium on this machine")
    script, problems = axe_script(), []
    async with Browser.start(tmp_path) as browser:
        page = await browser.page(width=1280, dark=dark)
        for name in LOOKED_AT:
            await page.open((site / f"{name}.html").as_uri())
            await page.wait("document.readyState === 'complete'")
            problems += [f"{name}: {one}" for one in await violations(page, script)]
            if await page.run("document.documentElement.scrollWidth > innerWidth"):
                problems.append(f"{name}: too wide")
    assert problems == []
