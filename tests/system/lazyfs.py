"""A file system that loses power: `python lazyfs.py MOUNTPOINT` serves it, orders come as JSON lines on standard input.

The process is the disk, so it outlives the broker that is killed. A power cut freezes it at once: the surviving image is fixed, and every
request hangs as if the machine had stopped, until `restore` fails them all and mounts again. When standard input ends, so does the mount.
Signals do not end it: after Ctrl-C, which comes to it too, a test still has to take down the node whose disk this is.

Orders, each answered by one line: cut, restore, fail_sync, sync_takes, room, stats. lazy_disk.py is the hand that gives them.
Not here: what survives (lazy_tree.py).
"""

import errno
import fnmatch
import heapq
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

from system import fuse_wire as wire
from system.lazy_tree import Cut, Directory, File, Resized, Tree, Written

TOTAL_BYTES = 1 << 40


class LazyFileSystem:
    def __init__(self, mountpoint: str) -> None:
        self.tree = Tree()
        self.is_frozen = False
        self.room_bytes: int | None = None  # How many more bytes can be written; None: no end in sight.
        self.gives_back = False  # Files that are removed give their room back.
        self.sync_ms = 0.0
        self.failing: dict[str, Any] | None = None  # {"pattern", "skip", "times"}: which syncs of which paths fail.
        self.counts = {"writes": 0, "syncs": 0, "failed_syncs": 0, "refused_writes": 0}
        self._cut_order: dict[str, Any] | None = None
        self._mountpoint = mountpoint
        self._device = wire.mount(mountpoint)
        self._buffer = bytearray(wire.BUFFER_BYTES)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = count()
        self._answers = self._answer_table()

    # The life of the process.

    def serve(self) -> None:
        orders = b""
        while True:
            waiting = select.poll()
            waiting.register(0, select.POLLIN)
            if not self.is_frozen:
                waiting.register(self._device, select.POLLIN)
            ready = [fd for fd, _ in waiting.poll(self._wait_ms())]
            self._run_due()
            if 0 in ready:
                piece = os.read(0, 65536)
                if not piece:
                    return wire.unmount(self._mountpoint)
                *lines, orders = (orders + piece).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))
            if self._device in ready:
                self._drain_requests()

    def _wait_ms(self) -> int | None:
        return max(0, int((self._later[0][0] - time.monotonic()) * 1000) + 1) if self._later else None

    def _do_later(self, after_ms: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + after_ms / 1000, next(self._tickets), act))

    def _run_due(self) -> None:
        while self._later and self._later[0][0] <= time.monotonic() and not self.is_frozen:
            heapq.heappop(self._later)[2]()

    def _drain_requests(self) -> None:
        view = memoryview(self._buffer)
        while not self.is_frozen:
            try:
                size = os.readv(self._device, [self._buffer])
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ENOENT:  # The request was interrupted before it was read.
                    continue
                raise
            self._answer(wire.read_request(view[:size]))
            if self._later:
                return

    # Orders.

    def _obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "cut":
                if not self.is_frozen:
                    self._cut_order = order
                    if order["after_writes"] == 0:
                        self._cut()
            case "restore":
                self._restore()
            case "fail_sync":
                self.failing = order
            case "sync_takes":
                self.sync_ms = order["ms"]
                while self.sync_ms == 0 and self._later:
                    heapq.heappop(self._later)[2]()
            case "room":
                self.room_bytes, self.gives_back = order["bytes"], order["gives_back"]
            case "stats":
                self._say(self.counts | {"syncs_under_way": len(self._later), "is_cut": self.is_frozen})
                return
        self._say({})

    def _say(self, words: dict[str, Any]) -> None:
        print(json.dumps(words), flush=True)

    def _cut(self) -> None:
        assert self._cut_order is not None
        self.is_frozen = True
        self.tree.cut(Cut(self._cut_order["how"]), self._cut_order["seed"])
        self._cut_order = None
        self._later.clear()

    def _restore(self) -> None:
        wire.unmount(self._mountpoint)
        os.close(self._device)
        self._device = wire.mount(self._mountpoint)
        self.is_frozen = False
        self.failing = None

    # Requests.

    def _answer(self, request: wire.Request) -> None:
        if request.op in wire.UNANSWERED:
            return
        try:
            answer = self._answers.get(request.op)
            body = answer(request) if answer else None
            if self.is_frozen:
                return
            if answer is None:
                self._send(wire.refuse(request.unique, errno.ENOSYS))
            elif body is not None:
                self._send(wire.reply(request.unique, body))
        except OSError as error:
            self._send(wire.refuse(request.unique, _errno_of(error)))
        except KeyError:
            self._send(wire.refuse(request.unique, errno.ESTALE))

    def _send(self, reply: bytes) -> None:
        with suppress(FileNotFoundError):  # The asker was killed meanwhile.
            os.write(self._device, reply)

    def _answer_table(self) -> dict[int, Callable[[wire.Request], bytes | None]]:
        Op = wire.Op
        return {
            Op.INIT: lambda request: wire.init_reply(request.body),
            Op.LOOKUP: lambda request: self._entry(self.tree.find(request.node, wire.names(request.body)[0])),
            Op.GETATTR: lambda request: self._attributes(self.tree.nodes[request.node]),
            Op.SETATTR: self._set_attributes,
            Op.MKDIR: lambda request: self._entry(self.tree.make(request.node, wire.names(request.body[8:])[0], Directory)),
            Op.UNLINK: self._remove,
            Op.RMDIR: self._remove,
            Op.RENAME: lambda request: self._rename(request, 8),
            Op.RENAME2: lambda request: self._rename(request, 16),
            Op.CREATE: self._create,
            Op.OPEN: self._open,
            Op.OPENDIR: lambda request: wire.OPEN_OUT.pack(0, 0, 0),
            Op.READ: self._read,
            Op.WRITE: self._write,
            Op.READDIR: self._read_directory,
            Op.FSYNC: self._sync,
            Op.FSYNCDIR: self._sync,
            Op.STATFS: self._statfs,
            Op.FLUSH: lambda request: b"",
            Op.RELEASE: lambda request: b"",
            Op.RELEASEDIR: lambda request: b"",
            Op.ACCESS: lambda request: b"",
        }

    def _entry(self, node: File | Directory) -> bytes:
        return wire.ENTRY.pack(node.number, 0, wire.VALID_SECONDS, wire.VALID_SECONDS, 0, 0) + _raw_attributes(node)

    def _attributes(self, node: File | Directory) -> bytes:
        return wire.ATTR_VALID.pack(wire.VALID_SECONDS, 0, 0) + _raw_attributes(node)

    def _set_attributes(self, request: wire.Request) -> bytes:
        valid, _, _, size = wire.SETATTR_IN.unpack_from(request.body)
        if valid & wire.SETATTR_SIZE:
            self.tree.file(request.node).change(Resized(size))
        return self._attributes(self.tree.nodes[request.node])

    def _remove(self, request: wire.Request) -> bytes:
        name = wire.names(request.body)[0]
        removed = self.tree.find(request.node, name)
        self.tree.remove(request.node, name)
        if self.gives_back and self.room_bytes is not None and not isinstance(removed, Directory):
            self.room_bytes += len(removed.content)
        return b""

    def _rename(self, request: wire.Request, names_at: int) -> bytes:
        (new_parent,) = wire.U64.unpack_from(request.body)
        if names_at > 8 and wire.U32_PAIR.unpack_from(request.body, 8)[0] != 0:
            raise OSError(errno.EINVAL, "only plain renames")
        name, new_name = wire.names(request.body[names_at:])
        self.tree.rename(request.node, name, new_parent, new_name)
        return b""

    def _create(self, request: wire.Request) -> bytes:
        node = self.tree.make(request.node, wire.names(request.body[16:])[0], File)
        return self._entry(node) + wire.OPEN_OUT.pack(0, wire.DIRECT_IO, 0)

    def _open(self, request: wire.Request) -> bytes:
        flags, _ = wire.U32_PAIR.unpack_from(request.body)
        file = self.tree.file(request.node)
        if flags & os.O_TRUNC:
            file.change(Resized(0))
        return wire.OPEN_OUT.pack(0, wire.DIRECT_IO, 0)

    def _read(self, request: wire.Request) -> bytes:
        _, position, size = wire.READ_IN.unpack_from(request.body)
        return bytes(memoryview(self.tree.file(request.node).content)[position : position + size])

    def _write(self, request: wire.Request) -> bytes | None:
        _, position, size = wire.WRITE_IN.unpack_from(request.body)
        if self._cut_order is not None:
            self._cut_order["after_writes"] -= 1
            if self._cut_order["after_writes"] <= 0:
                self._cut()
                return None
        if self.room_bytes is not None:
            size = min(size, self.room_bytes)
            self.room_bytes -= size
            if size == 0:
                self.counts["refused_writes"] += 1
                raise OSError(errno.ENOSPC, "no room")
        self.counts["writes"] += 1
        at = wire.WRITE_IN.size
        self.tree.file(request.node).change(Written(position, bytes(request.body[at : at + size])))
        return wire.U32_PAIR.pack(size, 0)

    def _read_directory(self, request: wire.Request) -> bytes:
        _, position, size = wire.READ_IN.unpack_from(request.body)
        listing = b""
        for at, (name, number) in enumerate(self.tree.directory(request.node).content.items(), start=1):
            if at <= position:
                continue
            entry = wire.directory_entry(number, at, name, is_directory=isinstance(self.tree.nodes[number], Directory))
            if len(listing) + len(entry) > size:
                break
            listing += entry
        return listing

    def _sync(self, request: wire.Request) -> bytes | None:
        """Covers what was changed before the call; what is changed while it takes its time is for the next one."""
        node = self.tree.nodes[request.node]
        covered, unique = node.changes, request.unique
        is_failing = self._takes_the_blame(request.node)

        def finish() -> None:
            self.counts["failed_syncs" if is_failing else "syncs"] += 1
            if is_failing:
                node.forget(covered)
                self._send(wire.refuse(unique, errno.EIO))
            else:
                node.settle(covered)
                self._send(wire.reply(unique))

        if self.sync_ms == 0:
            finish()
        else:
            self._do_later(self.sync_ms, finish)
        return None

    def _takes_the_blame(self, number: int) -> bool:
        failing = self.failing
        if failing is None or not fnmatch.fnmatch(self.tree.path(number), failing["pattern"]):
            return False
        if failing["skip"] > 0:
            failing["skip"] -= 1
            return False
        failing["times"] -= 1
        if failing["times"] <= 0:
            self.failing = None
        return True

    def _statfs(self, request: wire.Request) -> bytes:
        free = (TOTAL_BYTES if self.room_bytes is None else self.room_bytes) // 4096
        return wire.STATFS_OUT.pack(TOTAL_BYTES // 4096, free, free, 1 << 20, 1 << 20, 4096, 255, 4096, 0)


def _raw_attributes(node: File | Directory) -> bytes:
    return wire.attributes(node.number, is_directory=isinstance(node, Directory), size=len(node.content))


def _errno_of(error: OSError) -> int:
    known: dict[type[OSError], int] = {
        FileNotFoundError: errno.ENOENT,
        FileExistsError: errno.EEXIST,
        IsADirectoryError: errno.EISDIR,
        NotADirectoryError: errno.ENOTDIR,
    }
    return error.errno or known.get(type(error), errno.EIO)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    LazyFileSystem(sys.argv[1]).serve()
