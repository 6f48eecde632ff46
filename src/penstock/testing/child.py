"""The process behind a test's broker: an ordinary node that also ends when whoever started it is gone.

Its standard input is a pipe that the test holds open. A line there is a topic to make, and is answered by a line: an empty object, or
what went wrong. `stop()` sends SIGTERM. When the test's process was killed the node stops likewise, and a temporary directory it takes
along: it sees the pipe close or, where a fork of the test's process holds that open, that it has another parent. The kernel's own signal
for that (PR_SET_PDEATHSIG) will not do: it comes when the thread that started the node ends, and tests start nodes in threads.

Variables of the environment are not listened to: a test gets the node that it asked for, whatever PENSTOCK_… the machine has set.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
from types import ModuleType
from typing import Any, cast

# kio offers its types to Hypothesis wherever that is installed, as it is beside many tests. A node has no use for it, and importing it
# takes a quarter of the time until clients may come.
sys.modules["hypothesis"] = cast(ModuleType, None)

from penstock.peers.failures import PeerFailure  # noqa: E402
from penstock.server.complaints import Complaint  # noqa: E402
from penstock.server.configuration import configure  # noqa: E402
from penstock.server.process import run  # noqa: E402
from penstock.testing.topics import create_topic  # noqa: E402

PARENT_LOOK_SECONDS = 0.5

_has_stopped = threading.Lock()  # Taken once, and kept.


def main() -> int:
    told = json.loads(sys.argv[-1])
    threading.Thread(target=_serve_the_parent, name="questions", daemon=True).start()
    threading.Thread(target=_watch_the_parent, args=(os.getppid(),), name="parent", daemon=True).start()
    try:
        return run(configure(told["flags"], {}))
    except Complaint as complaint:
        print(f"{complaint.what}\n  {complaint.next_step}", file=sys.stderr)
        return 1
    finally:
        if told["is_temporary"]:
            shutil.rmtree(told["flags"]["data.dir"], ignore_errors=True)


def _serve_the_parent() -> None:
    for line in sys.stdin:
        print(json.dumps(_make_topic(json.loads(line))), flush=True)
    _stop()


def _watch_the_parent(pid: int) -> None:
    while os.getppid() == pid:
        time.sleep(PARENT_LOOK_SECONDS)
    _stop()


def _stop() -> None:
    """Once: a second signal means to stop at once, and would leave the directory behind."""
    if _has_stopped.acquire(blocking=False):
        os.kill(os.getpid(), signal.SIGTERM)


def _make_topic(wanted: dict[str, Any]) -> dict[str, str]:
    try:
        create_topic(**wanted)
        return {}
    except PeerFailure as failure:
        return {"problem": failure.problem, "advice": failure.advice}
