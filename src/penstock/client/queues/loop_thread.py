"""An event loop in a thread of its own, for programs that have none: what is awaited there is waited for here.

One for the whole process, made when it is first needed; a fork makes its own. The thread is a daemon: a program that ends does not wait
for it, and what it held under a lease comes back when that lapses. An interrupt (Ctrl-C) while waiting cancels what was waited for.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-queues", daemon=True)
        self._thread.start()

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a Queue was used inside its own event loop, where waiting would never end: use AsyncQueue there")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


class _Shared:
    """The process's own, if there is one."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.abandoned = getattr(self, "thread", None)  # A fork keeps its parent's: what is cleaned up there shares a selector with it.
        self.thread: LoopThread | None = None
        self.making = threading.Lock()


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.forget)  # Threads do not come along.


def loop_thread() -> LoopThread:
    with _shared.making:
        if _shared.thread is None:
            _shared.thread = LoopThread()
        return _shared.thread
