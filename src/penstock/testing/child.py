"""The process behind a test's broker: an ordinary node that also ends when whoever started it is gone.

Its standard input is a pipe that the test holds open. A line there is a topic to make, and is answered by a line: an empty object, or
what went wrong. When the pipe closes, by `stop()` or because the test's process was killed, the node stops as it does for SIGTERM; a
temporary directory it takes along. Variables of the environment are not listened to: a test gets the node that it asked for, whatever
PENSTOCK_… the machine has set.
"""

import json
import os
import shutil
import signal
import sys
import threading
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


def main() -> int:
    told = json.loads(sys.argv[-1])
    threading.Thread(target=_serve_the_parent, name="parent", daemon=True).start()
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
    os.kill(os.getpid(), signal.SIGTERM)


def _make_topic(wanted: dict[str, Any]) -> dict[str, str]:
    try:
        create_topic(**wanted)
        return {}
    except PeerFailure as failure:
        return {"problem": failure.problem, "advice": failure.advice}
