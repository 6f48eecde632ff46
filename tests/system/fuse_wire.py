"""The kernel's FUSE protocol (7.31 and later), as far as a plain tree of files needs it.

Spoken straight to /dev/fuse: no library has to be installed, and one request costs microseconds. Field names and numbers are those of
linux/fuse.h. Not here: what the answers are (lazyfs.py).
"""

import ctypes
import os
import stat
import struct
from enum import IntEnum
from typing import NamedTuple

WRITE_BYTES_MAX = 1 << 20
BUFFER_BYTES = WRITE_BYTES_MAX + 4096  # The largest request and its headers.


class Op(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


UNANSWERED = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT, Op.DESTROY})

IN_HEADER = struct.Struct("<IIQQIIII")  # len, opcode, unique, nodeid, uid, gid, pid, padding
OUT_HEADER = struct.Struct("<IiQ")  # len, error, unique
ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
ENTRY = struct.Struct("<QQQQII")  # nodeid, generation, entry_valid, attr_valid, and their nanoseconds
ATTR_VALID = struct.Struct("<QII")
OPEN_OUT = struct.Struct("<QII")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
READ_IN = struct.Struct("<QQI")
WRITE_IN = struct.Struct("<QQI20x")
SETATTR_IN = struct.Struct("<IIQQ")  # valid, padding, fh, size; the rest does not matter here
STATFS_OUT = struct.Struct("<QQQQQIIII24x")
DIRENT = struct.Struct("<QQII")
U64 = struct.Struct("<Q")
U32_PAIR = struct.Struct("<II")

SETATTR_SIZE = 1 << 3
BIG_WRITES = 1 << 5
ATOMIC_TRUNCATE = 1 << 3
MAX_PAGES = 1 << 22
DIRECT_IO = 1 << 0  # Each read and write of a program comes here; nothing is kept in the page cache.

# Only the kernel that asks can change the tree, so what it was told stays true until the next mount.
VALID_SECONDS = 3600

_libc = ctypes.CDLL(None, use_errno=True)


class Request(NamedTuple):
    op: int
    unique: int
    node: int
    body: memoryview


def read_request(buffer: memoryview) -> Request:
    _, op, unique, node, *_ = IN_HEADER.unpack_from(buffer)
    return Request(op, unique, node, buffer[IN_HEADER.size :])


def reply(unique: int, body: bytes = b"") -> bytes:
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), 0, unique) + body


def refuse(unique: int, errno: int) -> bytes:
    return OUT_HEADER.pack(OUT_HEADER.size, -errno, unique)


def names(body: memoryview) -> list[str]:
    return [os.fsdecode(name) for name in bytes(body).split(b"\0")[:-1]]


def attributes(number: int, *, is_directory: bool, size: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if is_directory else stat.S_IFREG | 0o644
    blocks = -(-size // 512)
    return ATTR.pack(number, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)


def init_reply(body: memoryview) -> bytes:
    major, minor, readahead, _ = INIT_IN.unpack_from(body)
    flags = BIG_WRITES | ATOMIC_TRUNCATE | MAX_PAGES
    return INIT_OUT.pack(major, min(minor, 38), readahead, flags, 64, 48, WRITE_BYTES_MAX, 1, WRITE_BYTES_MAX // 4096, 0, 0)


def directory_entry(number: int, position: int, name: str, *, is_directory: bool) -> bytes:
    encoded = os.fsencode(name)
    entry = DIRENT.pack(number, position, len(encoded), (stat.S_IFDIR if is_directory else stat.S_IFREG) >> 12) + encoded
    return entry + bytes(-len(entry) % 8)


def mount(path: str) -> int:
    """Mounts at the path and returns the device that speaks for it. Needs root (CAP_SYS_ADMIN)."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()},allow_other"
    if _libc.mount(b"lazyfs", os.fsencode(path), b"fuse.lazyfs", 0, options.encode()) != 0:
        errno = ctypes.get_errno()
        os.close(device)
        raise OSError(errno, os.strerror(errno), path)
    return device


def unmount(path: str) -> None:
    """Takes the mount away at once; requests under way fail. No error if nothing is mounted."""
    force, detach = 1, 2
    _libc.umount2(os.fsencode(path), force | detach)
