"""A real Chromium, driven over its debugging pipe: load a page, click, paste. Standard library only."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SECONDS = 30
# In a page of its own, so that what is pasted comes from the browser's clipboard and not from the page that copied.
PASTE_INTO = "data:text/html,<textarea autofocus></textarea>"


class Browser:
    """One headless browser with a profile of its own; ends with the ``with`` block."""

    def __init__(self, profile: Path, *options: str) -> None:
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        self.rest = b""
        self.numbers = itertools.count(1)
        pipes = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # Chromium reads commands from 3 and answers on 4
        words = [CHROMIUM or "", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            ["bash", "-c", pipes, "bash", *words, f"--user-data-dir={profile}", *options],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)

    def call(self, method: str, session: str = "", **words: Any) -> dict[str, Any]:
        """One command and its answer; what the browser tells unasked is passed over."""
        number = next(self.numbers)
        asked = {"id": number, "method": method, "params": words, **({"sessionId": session} if session else {})}
        os.write(self.to, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            assert select.select([self.back], [], [], SECONDS)[0], "the browser does not answer"
            read = os.read(self.back, 1 << 20)
            assert read, "the browser ended"
            self.rest += read
        line, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, address: str) -> Page:
        target = self.call("Target.createTarget", url=address)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.wait_for(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(address[:4])})")
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **words: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **words)

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to on the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        end = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def click(self, element: str) -> None:
        """With the mouse, in the middle of what the expression names."""
        x, y = self.value(
            f"(e => {{ e.scrollIntoView(); const r = e.getBoundingClientRect(); "
            f"return [r.x + r.width / 2, r.y + r.height / 2]; }})({element})"
        )
        self.call("Page.bringToFront")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def paste(self) -> str:
        """What the clipboard puts into an empty text area."""
        self.call("Page.bringToFront")
        self.value("document.querySelector('textarea').focus()")
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", commands=["paste"], key="v", modifiers=2)
        self.wait_for("document.querySelector('textarea').value !== ''")
        return str(self.value("document.querySelector('textarea').value"))
