"""Pictures of the pages for the docs, of a real cluster with a topology that has something to see.

python -m tests.browser.screenshots [FOLDER]        (docs/images by default; takes two minutes)
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.browser import Browser
from tests.support.devcluster import ROOT, DevCluster

# Long enough for lines over time, and for rates to settle.
_WATCHED_SECS = 75


async def take(base: str, topology_id: str, folder: Path, scratch: Path) -> None:
    pages = {
        "ui-topology": f"/topology/{topology_id}",
        "ui-component-dark": f"/topology/{topology_id}/component/enrich",
    }
    async with Browser.start(scratch) as browser:
        first = await browser.page(width=1200)
        await first.open(base + pages["ui-topology"])
        await asyncio.sleep(_WATCHED_SECS)
        for name, path in pages.items():
            dark = name.endswith("-dark")
            page = await browser.page(width=1200, height=1000, dark=dark)
            await page.open(base + path)
            await page.wait("!!document.querySelector('tbody tr')")
            await asyncio.sleep(3)
            height = await page.run("document.documentElement.scrollHeight")
            await page.look(width=1200, height=min(height, 1500), dark=dark)
            await page.screenshot(folder / f"{name}.png", whole=False)
            await page.close()


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        DevCluster.start(Path(scratch) / "cluster", supervisors=2, slots=3) as cluster,
    ):
        topology = ROOT / "tests" / "topologies" / "observed"
        cluster.storm("jar", topology, "observed.py", "orders", "150", "4", "600")
        cluster.worker_pids(3)
        (topology_id,) = (one.id for one in cluster.call("getTopologySummaries"))
        ui = cluster.state()["ui"]
        base = f"http://{ui['host']}:{ui['port']}"
        asyncio.run(take(base, topology_id, folder, Path(scratch)))


if __name__ == "__main__":
    main()
