"""Threads that flush files and never take the interpreter: asked by a call that does not wait, and heard through a descriptor that an event
loop watches. Compiled where that could be done, on Linux; elsewhere there are none.

A flush in a Python thread ends when the thread has the interpreter again, which the event loop gives up late or not at all while there is
work. And a flush costs the kernel as much of a processor as a small request costs us: here that falls to another core, where there is one.
- `FlushThreads()` raises OSError where the system has no more threads or descriptors.
- `begin(fds)` flushes these files side by side, `FILES_MAX` at most, none being under way.
- `told` becomes readable when a flush has ended; `ended()` then gives (place among the files, error number or 0) of each that has.
- `close()` waits for what is under way; nothing more is told.
Hot path: `begin` and `ended`, once for each round.
"""

import logging
from typing import TYPE_CHECKING

log = logging.getLogger("penstock")

if TYPE_CHECKING:
    from penstock.server._flush_threads import FILES_MAX, FlushThreads
else:
    try:
        from penstock.server._flush_threads import FILES_MAX, FlushThreads
    except ImportError:
        FILES_MAX, FlushThreads = 0, None


def start() -> "FlushThreads | None":
    if FILES_MAX == 0:
        return None
    try:
        return FlushThreads()
    except (OSError, AttributeError) as failure:  # The latter on a Python that was built without eventfd.
        log.warning("flushes take a little longer here, by a thread that shares the interpreter: %s", failure)
        return None


__all__ = ["FILES_MAX", "FlushThreads", "start"]
