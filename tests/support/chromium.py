"""A real headless Chromium, spoken to over a pipe (Chrome DevTools Protocol): no port, no driver, no other package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_WORDS = (
    "--headless",
    "--no-sandbox",  # the tests may run as root in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Tab:
    """One open page."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive, self._rest, self._id = send, receive, b"", 0
        self.events: list[dict[str, Any]] = []
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: object) -> dict[str, Any]:
        """One command's answer. What happens meanwhile is added to ``events``."""
        self._id += 1
        message: dict[str, object] = {"id": self._id, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._id:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._receive, 1 << 20)
            assert data, "chromium is gone"
            self._rest += data
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def open(self, url: str) -> None:
        """Go there and wait until it is loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def size(self, width: int, height: int = 900, scheme: str = "light", media: str = "") -> None:
        """A window of so many CSS pixels; ``scheme`` as the person prefers it."""
        phone = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression of ours is worth on this page (the page itself may run none)."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def shot(self, path: Path, *, whole: bool = True) -> bytes:
        """A picture as PNG, of the whole page."""
        data = base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])
        path.write_bytes(data)
        return data

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"])


@contextmanager
def chromium() -> Iterator[Tab]:
    """A browser with one page; ends with the context."""
    program = next(filter(None, map(shutil.which, PROGRAMS)))
    to_read, to_send = os.pipe()
    from_read, from_send = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [program, *_WORDS, f"--user-data-dir={folder}"]
        # the protocol is on the descriptors 3 and 4; sh moves ours there
        shell = f'exec 3<&{to_read} 4>&{from_send}; exec "$@"'
        browser = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(to_read, from_send),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_send)
        try:
            yield Tab(to_send, from_read)
        finally:
            os.close(to_send)
            os.close(from_read)
            try:
                browser.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(browser.pid, 9)
                browser.wait()
