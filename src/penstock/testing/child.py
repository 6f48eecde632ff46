"""The process behind a test's broker: an ordinary node that also ends when whoever started it is gone.

Its standard input is a pipe that the test holds open and never writes to. When that closes, by `stop()` or because the test's process
was killed, the node stops as it does for SIGTERM; a temporary directory it takes along. Variables of the environment are not listened
to: a test gets the node that it asked for, whatever PENSTOCK_… the machine has set.
"""

import json
import os
import shutil
import signal
import sys
import threading
from types import ModuleType
from typing import cast

# kio offers its types to Hypothesis wherever that is installed, as it is beside many tests. A node has no use for it, and importing it
# takes a quarter of the time until clients may come.
sys.modules["hypothesis"] = cast(ModuleType, None)

from penstock.server.complaints import Complaint  # noqa: E402
from penstock.server.configuration import configure  # noqa: E402
from penstock.server.process import run  # noqa: E402


def main() -> int:
    told = json.loads(sys.argv[-1])
    threading.Thread(target=_end_with_the_parent, name="parent", daemon=True).start()
    try:
        return run(configure(told["flags"], {}))
    except Complaint as complaint:
        print(f"{complaint.what}\n  {complaint.next_step}", file=sys.stderr)
        return 1
    finally:
        if told["is_temporary"]:
            shutil.rmtree(told["flags"]["data.dir"], ignore_errors=True)


def _end_with_the_parent() -> None:
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
