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

from penstock.server.complaints import Complaint
from penstock.server.configuration import configure
from penstock.server.process import run


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
