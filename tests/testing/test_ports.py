"""The ports of tests (tests/ports.py): no two processes, and no two calls of one process, are given the same one."""

import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ports
import pytest
from ports import SLICE_PORTS, SLICES, free_port, free_ports_in_a_row

from penstock.cli.local_cluster import OWN_PORTS

SOME = SLICE_PORTS // 4


def test_a_port_is_not_given_again_while_others_are_left() -> None:
    given = [free_port() for _ in range(SOME)]
    assert len(set(given)) == SOME


def test_each_port_of_a_row_is_free_and_is_given_once() -> None:
    first = free_ports_in_a_row(5)
    assert set(range(first, first + 5)).isdisjoint(free_port() for _ in range(SOME))
    with socket.create_server(("127.0.0.1", first)):
        assert first not in {free_port() for _ in range(SLICE_PORTS)}
        assert first not in {free_ports_in_a_row(2) for _ in range(SLICE_PORTS // 2)}


def test_a_fork_is_given_other_ports() -> None:
    own = [free_port() for _ in range(SOME)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        given = own + pool.map(free_ports_in_a_row, [1] * SOME, chunksize=1)
    assert len(set(given)) == len(given) == 2 * SOME


def test_a_slice_whose_lock_may_not_be_opened_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As another user's file may be."""
    opened = os.open

    def open_file(path: Any, *flags: int, **more: Any) -> int:
        if str(path).endswith("-0.lock"):
            raise PermissionError(path)
        return opened(path, *flags, **more)

    monkeypatch.setattr(os, "open", open_file)
    locks = [ports.lock_slice(range(3), tmp_path) for _ in range(2)]
    assert locks == [ports.LOWEST + number * SLICE_PORTS for number in (1, 2)]
    with pytest.raises(RuntimeError, match="processes use ports for tests on this machine"):
        ports.lock_slice(range(3), tmp_path)


def test_processes_with_other_temporary_directories_are_given_other_ports(tmp_path: Path) -> None:
    own = (free_port() - ports.LOWEST) // SLICE_PORTS
    command = [sys.executable, "-c", f"import ports; ports.lock_slice([{own}])"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(ports.__file__).parent)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "processes use ports for tests on this machine" in ended.stderr


def test_no_slice_has_ports_that_a_local_cluster_chooses() -> None:
    assert OWN_PORTS.start >= ports.LOWEST + SLICES * SLICE_PORTS
