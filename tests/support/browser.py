"""A real Chromium without a window, driven over its DevTools protocol.

    async with Browser.start(tmp_path) as browser:
        page = await browser.page()
        await page.open("http://127.0.0.1:8080/")
        await page.wait("document.querySelector('h1')?.textContent === 'Cluster'")

Each browser has a profile of its own and ends with its block. `page.reports` holds what the page
broke: violations of its policy, uncaught exceptions, errors on the console, requests elsewhere.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars", "--mute-audio",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip
_START_SECS = 60.0


class PageError(AssertionError):
    """What a page's script raised, or a condition that never came true."""


class Browser:
    """A running Chromium."""

    def __init__(self, process: subprocess.Popen[bytes], socket: Any) -> None:
        self._process = process
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pages: dict[str, Page] = {}
        self._reader = asyncio.ensure_future(self._read())

    @classmethod
    @contextlib.asynccontextmanager
    async def start(cls, folder: Path) -> AsyncIterator[Browser]:
        """`folder` is for its profile, and is removed afterwards."""
        assert CHROMIUM is not None, "no Chromium: apt-get install chromium"
        profile = folder / "chromium"
        profile.mkdir(parents=True)
        process = await asyncio.to_thread(
            subprocess.Popen,
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port_file = profile / "DevToolsActivePort"
            deadline = time.monotonic() + _START_SECS
            while not (port_file.exists() and "\n" in port_file.read_text()):
                assert process.poll() is None, "Chromium ended at once"
                assert time.monotonic() < deadline, "Chromium did not start"
                await asyncio.sleep(0.05)
            port, path = port_file.read_text().split("\n")[:2]
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(
                    f"ws://127.0.0.1:{port}{path}", max_msg_size=1 << 28, heartbeat=None
                ) as socket,
            ):
                browser = cls(process, socket)
                try:
                    yield browser
                finally:
                    browser._reader.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                # Its session is its own: all of its helpers end with it.
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
            shutil.rmtree(profile, ignore_errors=True)

    async def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps(message))
        async with asyncio.timeout(60):
            return await answer

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                answer = self._answers.pop(event["id"])
                if answer.done():
                    continue
                if "error" in event:
                    answer.set_exception(PageError(json.dumps(event["error"])))
                else:
                    answer.set_result(event["result"])
            elif (page := self._pages.get(event.get("sessionId", ""))) is not None:
                page.on_event(event["method"], event["params"])

    async def page(
        self, *, width: int = 1280, height: int = 800, dark: bool = False, window: bool = False
    ) -> Page:
        """A new tab; in a window of its own, it stays visible when others are opened."""
        target = await self.call("Target.createTarget", url="about:blank", newWindow=window)
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        page = Page(self, attached["sessionId"])
        self._pages[attached["sessionId"]] = page
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            await page.call(f"{domain}.enable")
        await page.look(width=width, height=height, dark=dark)
        return page


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.reports: list[str] = []
        self.requests: list[str] = []
        self._origin = ""

    async def call(self, method: str, **params: Any) -> Any:
        return await self._browser.call(method, self._session, **params)

    async def look(self, *, width: int, height: int, dark: bool) -> None:
        """The size of the window, and the theme of the system."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[
                {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                {"name": "prefers-reduced-motion", "value": "reduce"},
            ],
        )

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", details["text"])
            self.reports.append(f"exception: {thrown}")
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.reports.append(f"{params['entry']['source']}: {params['entry']['text']}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            said = " ".join(str(one.get("value", one)) for one in params["args"])
            self.reports.append(f"console: {said}")
        elif method == "Audits.issueAdded":
            if "contentSecurityPolicyIssueDetails" in params["issue"]["details"]:
                self.reports.append(f"policy: {json.dumps(params['issue']['details'])}")
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            self.requests.append(url)
            if (
                self._origin
                and urlsplit(url).netloc != self._origin
                and not url.startswith("data:")
            ):
                self.reports.append(f"request elsewhere: {url}")

    async def open(self, url: str) -> None:
        """Go to an address. What the page shows is to be waited for."""
        self._origin = urlsplit(url).netloc
        found = await self.call("Page.navigate", url=url)
        assert "errorText" not in found, found

    async def run(self, script: str) -> Any:
        """The value of an expression, or of a promise. Raises PageError."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return found["result"].get("value")

    async def wait(self, condition: str, timeout_secs: float = 60.0) -> Any:
        """The value of an expression once it is true. Raises PageError that shows the page."""
        deadline = time.monotonic() + timeout_secs
        while True:
            try:
                value = await self.run(condition)
            except PageError:  # the page is being replaced, or is not there yet
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                shown = await self.run("location.href + '\\n' + document.body?.innerText")
                raise PageError(f"{condition} is not true; the page:\n{shown}\n{self.reports}")
            await asyncio.sleep(0.05)

    async def click(self, text: str, within: str = "document") -> None:
        """Click the button or the link with this text."""
        found = (
            f"[...{within}.querySelectorAll('button, a, summary')]"
            f".find((one) => one.textContent.trim() === {json.dumps(text)})"
        )
        await self.wait(f"!!{found}")
        await self.run(f"{found}.click()")

    async def key(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}),
            )  # fmt: skip

    async def text(self) -> str:
        """What the page shows."""
        found = await self.run("document.body.innerText")
        assert isinstance(found, str)
        return found

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the page."""
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    async def close(self) -> None:
        await self.call("Page.close")
