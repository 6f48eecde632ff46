"""Rows of a fixed layout: of bytes and of views, and harmless in garbage."""

import subprocess
import sys
from struct import Struct

import pytest

from penstock.packed import rows_of

PAIR = Struct("<qq")
GARBAGE = """
import gc
from struct import Struct
from penstock.packed import rows_of
gc.disable()
def leave_garbage():
    rows = rows_of(Struct("<qq"), memoryview(bytes(64))[:32])
    next(rows)
    cycle = [rows]
    cycle.append(cycle)
leave_garbage()
print(gc.collect() > 0)
"""


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda content: memoryview(content)[:]])
def test_rows_are_read_one_after_the_other(kind):
    content = PAIR.pack(1, 2) + PAIR.pack(3, 4)
    assert list(rows_of(PAIR, kind(content))) == [(1, 2), (3, 4)]
    assert list(rows_of(PAIR, kind(b""))) == []


def test_rows_that_are_garbage_are_collected():
    """Found by simulation: the node ended with a segmentation fault after something was raised in such a loop."""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", GARBAGE], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
