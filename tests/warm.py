"""`penstock` started from a process that has its modules already: it begins in milliseconds, and is a process all the same.

The program below imports what most commands and nodes need, and then forks for each that it is asked for. The fork has its own arguments,
variables, directory and standard streams. It ends in the order in which the interpreter ends a process, with the last step left out
(`leave`). What importing does (a module that all other modules import, say) cannot be seen this way: where starting is the point of a test,
or memory is, it is `python -m penstock` all the same. Another program that imports what it needs and then calls `serve` is forked likewise.
"""

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 1 << 17
CLONE_NEWNET = 0x4000_0000
PR_SET_PDEATHSIG = 1


class Forked:
    """One such process; what it does is called as in `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], line: socket.socket) -> None:
        self.args = ["penstock", *arguments]
        self.returncode: int | None = None
        self._line = line
        self.pid = int(line.recv(8))

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # It ended just now.
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            self._line.settimeout(seconds)
            with suppress(TimeoutError, BlockingIOError):
                code = self._line.recv(8)
                assert code, "whoever started the process is gone"
                self.returncode = int(code)
                self._line.close()
        return self.returncode


class Warm:
    """The process that starts them, of this program or another. It ends with the one that made it."""

    def __init__(self, program: str = __file__) -> None:
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        command = [sys.executable, program, str(theirs.fileno())]
        nowhere = subprocess.DEVNULL
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=kept, stdin=nowhere, stdout=nowhere)

    def start(
        self, arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str], directory: str, network: str = ""
    ) -> Forked:
        """The streams are its input, output and errors; the caller closes them. `network`: the file of the namespace that it enters."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            asked = {"arguments": list(arguments), "environment": dict(environment), "directory": directory, "network": network}
            socket.send_fds(self._door, [json.dumps(asked).encode()], [*streams, theirs.fileno()])
        return Forked(arguments, ours)


@cache
def warm() -> Warm:
    return Warm()


# In the other process.


def serve(door: socket.socket) -> None:
    """Returns in a fork that is to run a command; its arguments are in `sys.argv`.

    Ctrl-C comes to all processes of a terminal. This one ignores it: tests that are interrupted still take down what it has started for
    them, and ask it how that ended. It ends when they have ended.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(door, REQUEST_BYTES_MAX, 4)
        if not request:
            sys.exit()
        if os.fork() == 0:
            door.close()
            return watch(json.loads(request), streams)
        for stream in streams:
            os.close(stream)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def watch(asked: dict[str, Any], streams: list[int]) -> None:
    """Forks once more, and tells of the fork: its number, and how it ended. Meanwhile the first one answers the door."""
    end_with_parent()
    line = streams.pop()
    pid = os.fork()
    if pid == 0:
        end_with_parent()
        os.close(line)
        return become(asked, streams)
    for stream in streams:
        os.close(stream)
    with suppress(BrokenPipeError):
        os.write(line, b"%d" % pid)
        os.write(line, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def become(asked: dict[str, Any], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if asked["network"]:
        enter_network(asked["network"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    sys.argv = ["penstock", *asked["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with_parent() -> None:
    """Has this process killed when its parent ends: a worker of the suite that dies leaves no nodes behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def enter_network(file: str) -> None:
    """Puts the calling thread, and what that starts, into a network namespace."""
    with open(file) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns", file)


def load_messages() -> None:
    """Loads the messages that commands and nodes exchange, each in the version that ours speak: else every fork would load its own."""
    from penstock.peers.versions import OWN_VERSIONS
    from penstock.wire import schemas

    for api, (_, version) in OWN_VERSIONS.items():
        schemas.write_request(api, version, 0, None, {})
        schemas.write_response(api, version, 0, {})


def leave(code: int) -> NoReturn:
    """Ends the process as the interpreter does, but does not take the modules apart.

    To do so writes to every page that the fork shares with the process it came from; it took longer than most commands.
    """
    threading._shutdown()  # Waits for threads.
    atexit._run_exitfuncs()
    gc.collect()  # Tasks whose failure was never looked at complain when they are collected.
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # The interpreter has its own way to tell of it.
    os._exit(code)


if __name__ == "__main__":
    import uvloop  # noqa: F401

    import penstock.cli.cluster
    import penstock.cli.configs
    import penstock.cli.consume
    import penstock.cli.groups
    import penstock.cli.log
    import penstock.cli.produce
    import penstock.cli.root
    import penstock.cli.serve
    import penstock.cli.topics
    import penstock.cli.transactions
    import penstock.server.process

    sys.path.pop(0)  # The directory of this file, which a command does not have.
    load_messages()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        penstock.cli.main()
    except SystemExit as ended:
        if isinstance(ended.code, int):
            leave(ended.code)
        raise
