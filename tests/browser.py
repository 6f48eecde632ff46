"""A real browser without a window: Chromium, spoken to through a pipe in its own debugging protocol.

It opens one page, waits for what a test wants to see there, and notes whatever the page complains about, refused scripts among it.
Nothing but the browser itself is needed: the protocol is JSON, with a zero byte after each message.
"""

import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from machine import BROWSERS
from waiting import PATIENCE_S, until

MOVE_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null'  # Chromium takes commands from descriptor 3 and answers on 4.


class Browser:
    def __init__(self, profile: Path) -> None:
        binary = next(path for name in BROWSERS if (path := shutil.which(name)))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["sh", "-c", MOVE_PIPES, "sh", binary, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._events = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._unread = b""
        self._next_id = 0
        self._target = ""
        self._page: str | None = None
        self.complaints: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, address: str) -> None:
        """Opens the address in a new page, in place of the one before, whose complaints are forgotten."""
        self._page = None
        if self._target:
            self.call("Target.closeTarget", targetId=self._target)
        self.complaints = []
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._page = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Log", "Runtime", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)
        self.until("location.protocol !== 'about:' && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Waits until the expression holds on the page; what it is then."""
        return until(lambda: self.evaluate(expression), lambda: f"{expression}; the page says:\n{self.text()}", every_s=0.05)

    def text(self) -> str:
        return str(self.evaluate("document.body.innerText"))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": parameters} | ({"sessionId": self._page} if self._page else {})
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._next_id:
                assert "error" not in heard, heard["error"]
                return heard["result"]  # type: ignore[no-any-return]
            self._note(heard)

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._events], [], [], PATIENCE_S)[0], "the browser says nothing"
            piece = os.read(self._events, 1 << 16)
            assert piece, "the browser has gone"
            self._unread += piece
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def _note(self, heard: dict[str, Any]) -> None:
        if heard.get("method") == "Log.entryAdded" and heard["params"]["entry"]["level"] == "error":
            self.complaints.append(heard["params"]["entry"]["text"])
        elif heard.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(heard["params"]["exceptionDetails"]))
