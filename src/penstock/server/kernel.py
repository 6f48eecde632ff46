"""The few system calls that Python has no name for, and what to do on a system that lacks them.

Linux is what is tested. On macOS a flush is F_FULLFSYNC (its fsync stops at the drive's cache); syncfs, early write-back and reads
that refuse to wait are not there, and callers are told so by a constant or a False.
"""

import ctypes
import errno
import fcntl
import os
import struct
import sys

IS_LINUX = sys.platform.startswith("linux")

# statfs(2) magics of file systems whose syncfs writes out every dirty page and every new name, waits for both, and reports
# what failed. Not here: FUSE and network file systems (they may forget to forward it), overlays, and anything unknown.
FILE_SYSTEMS_THAT_HONOUR_SYNCFS = {0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0xF2F52010: "f2fs"}

# Before Linux 5.8 syncfs answers "done" even when write-back failed.
_SYNCFS_REPORTS_ERRORS_SINCE = (5, 8)

_SYNC_FILE_RANGE_WRITE = 2
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_MAX = 32 << 20  # The highest that glibc accepts.
_STATFS_BYTES = 256  # More than any architecture's struct statfs.

_libc = ctypes.CDLL(None, use_errno=True)  # Calls through it let other threads run.

_CAN_START_WRITE_BACK = IS_LINUX and hasattr(_libc, "sync_file_range")
if _CAN_START_WRITE_BACK:
    _libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


# Reads that refuse to wait, straight into a new bytes object. Copying a megabyte once more, out of a buffer of ours into cold memory,
# takes longer than the read itself; Python's own preadv can only fill a buffer that was zeroed first.
CAN_READ_WITHOUT_WAITING = IS_LINUX and hasattr(_libc, "preadv2") and hasattr(os, "RWF_NOWAIT") and hasattr(ctypes, "pythonapi")


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


if CAN_READ_WITHOUT_WAITING:
    _libc.preadv2.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int]
    _libc.preadv2.restype = ctypes.c_ssize_t
    _new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize  # Without a string: uninitialised, for its maker to fill before anyone sees it.
    _new_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
    _new_bytes.restype = ctypes.py_object
    _address_of = ctypes.pythonapi.PyBytes_AsString
    _address_of.argtypes = [ctypes.py_object]
    _address_of.restype = ctypes.c_void_p


def read_without_waiting(fd: int, position: int, size: int) -> bytes | None:
    """Exactly `size` bytes (at least one), or None where not all of them are in memory. Raises OSError like any read."""
    answer: bytes = _new_bytes(None, size)
    vector = _Vector(_address_of(answer), size)
    got = _libc.preadv2(fd, ctypes.addressof(vector), 1, position, os.RWF_NOWAIT)
    if got == size:
        return answer
    code = ctypes.get_errno() if got < 0 else errno.EAGAIN
    if code == errno.EAGAIN:
        return None
    raise OSError(code, os.strerror(code))


def flush_file(fd: int) -> None:
    """Waits until the file's bytes, and the size that finds them again, are on the device."""
    if IS_LINUX:
        os.fdatasync(fd)
    else:
        _flush_all(fd)


def flush_directory(fd: int) -> None:
    """Waits until the names in the directory are on the device."""
    if IS_LINUX:
        os.fsync(fd)
    else:
        _flush_all(fd)


def flush_file_system(fd: int) -> None:
    """Waits until everything written so far to the file system that holds `fd` is on the device; raises OSError if any of it failed."""
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def can_flush_file_system(fd: int) -> bool:
    """Whether `flush_file_system` is there and may be believed for the file system that holds `fd`."""
    if not IS_LINUX or not hasattr(_libc, "syncfs"):
        return False
    return _kernel_version() >= _SYNCFS_REPORTS_ERRORS_SINCE and _file_system_magic(fd) in FILE_SYSTEMS_THAT_HONOUR_SYNCFS


def start_write_back(fd: int, position: int, size: int) -> None:
    """Asks the kernel to begin writing these bytes out, without waiting and without any promise. An error shows at the next flush."""
    if _CAN_START_WRITE_BACK:
        _libc.sync_file_range(fd, position, size, _SYNC_FILE_RANGE_WRITE)


def keep_freed_memory(bytes_max: int) -> None:
    """Lets the process keep up to `bytes_max` of memory that it freed, instead of giving it back to the kernel at once.

    A large fetch reply is a few megabytes that live for a millisecond. By default glibc takes each from the kernel and returns it, and the
    page faults cost ten times as much as the read itself (measured: 2 instead of 20 GB per CPU second). Nothing is done where the
    allocator is another one.
    """
    if IS_LINUX and hasattr(_libc, "gnu_get_libc_version"):
        _libc.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
        _libc.mallopt(_M_TRIM_THRESHOLD, bytes_max)


def _flush_all(fd: int) -> None:
    full_flush = getattr(fcntl, "F_FULLFSYNC", None)
    if full_flush is None:
        os.fsync(fd)
        return
    try:
        fcntl.fcntl(fd, full_flush)
    except OSError:  # Not every file system on macOS knows it; what is left is fsync.
        os.fsync(fd)


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()) or 0)


def _file_system_magic(fd: int) -> int:
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(fd, answer) != 0:
        return 0
    magic: int = struct.unpack_from("@l", answer)[0]  # f_type is the first word wherever Linux runs.
    return magic & 0xFFFFFFFF
