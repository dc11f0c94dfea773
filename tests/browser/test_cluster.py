"""The pages over a real cluster: `storm dev` as a user starts it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.browser import CHROMIUM, Browser
from tests.support.devcluster import ROOT, DevCluster, wait_for
from tests.support.live_files import found
from tests.support.thirdparty import unavailable

OBSERVED = ROOT / "tests" / "topologies" / "observed"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    if CHROMIUM is None:
        unavailable("there is no Chromium on this machine")
    with DevCluster.start(tmp_path_factory.mktemp("cluster"), supervisors=2) as cluster:
        cluster.storm("jar", OBSERVED, "observed.py", "orders", "100", "12", "50")
        cluster.worker_pids(3)
        yield cluster


@pytest.fixture
def base(cluster: DevCluster) -> str:
    ui = cluster.state()["ui"]
    return f"http://{ui['host']}:{ui['port']}"


async def test_a_topology_is_seen_to_work_to_break_and_to_be_changed(
    cluster: DevCluster, base: str, tmp_path: Path
) -> None:
    async with Browser.start(tmp_path) as browser:
        page = await browser.page()
        await page.open(base)
        await page.click("orders")
        # `enrich` takes 12 ms a tuple, and two executors of it get 300 tuples a second.
        findings = "document.querySelector('.findings')?.innerText"
        await page.wait(f"{findings}.includes('enrich is the bottleneck')", 60)
        assert "Why is it slow?" in await page.text()
        await page.wait("!!document.querySelector('.box.tone-bad')")
        assert await page.run("document.querySelectorAll('.edge.slow').length") >= 3

        # A component: its errors with their tracebacks.
        await page.click("enrich", "document.querySelector('.scroll ~ *, main')")
        await page.wait("document.querySelector('h1')?.innerText === 'enrich'")
        await page.wait("!!document.querySelector('.errors summary')", 60)
        await page.run("document.querySelector('.errors details').open = true")
        traceback = await page.run("document.querySelector('.errors pre').innerText")
        assert "observed.py" in traceback
        assert "no price for <b>" in traceback

        # Its log, followed, over the logviewer.
        await page.run("document.querySelector('.errors li > a').click()")
        await page.wait("document.querySelector('pre.log')?.innerText.includes('ValueError')")

        # A worker that is killed is started again, and the page says so.
        await page.open(base)
        await page.click("orders")
        await page.wait("document.querySelectorAll('.box').length === 7")
        os.kill(next(iter(cluster.worker_pids(3))), signal.SIGKILL)
        await page.wait(f"{findings}.includes('ended unexpectedly')", 60)

        # An action.
        await page.click("Deactivate")
        await page.click("Deactivate", "document.querySelector('dialog')")
        await page.wait(f"{findings}.includes('Deactivated')", 60)
        assert cluster.topologies()["orders"]["status"] == "INACTIVE"
        assert page.reports == []


async def test_the_logs_of_a_real_worker_are_searched_and_its_dumps_are_listed(
    cluster: DevCluster, base: str, tmp_path: Path
) -> None:
    (one,) = await asyncio.to_thread(cluster.call, "getTopologySummaries")
    topology_id = one.id
    async with Browser.start(tmp_path) as browser:
        page = await browser.page()
        await page.open(f"{base}/search?topology={topology_id}&text=worker_running")
        await page.wait("document.querySelectorAll('mark').length >= 3", 60)
        await page.open(f"{base}/topology/{topology_id}")
        await page.click("Stacks")
        await page.wait("document.querySelector('#status').innerText.includes('was requested')")
        dumps = cluster.data_dir / "logs"
        wait_for("stacks", lambda: found(dumps, "stacks-*.txt"), 60)
        await page.open(f"{base}/topology/{topology_id}/logs")
        await page.wait("document.body.innerText.includes('stacks-')", 60)
        await page.run(
            "[...document.querySelectorAll('a')].find((one) => one.innerText.startsWith('stacks-'))"
            ".click()"
        )
        await page.wait("document.querySelector('pre.log')?.innerText.includes('Thread')", 60)
        assert page.reports == []
