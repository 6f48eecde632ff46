"""SIGTERM and Ctrl-C while a pipeline runs, without Spark: the event that they set, and what a second one does."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from waiting import PATIENCE_S, until

from penstock.pipeline.launching import StopSignals

ASKED_TWICE = """
import os, signal, sys, threading
from penstock.pipeline.launching import StopSignals
stopping = threading.Event()
with StopSignals(stopping):
    print("listens", flush=True)
    stopping.wait()
    print("asked", flush=True)
    threading.Event().wait()
"""


class Watched(threading.Event):
    """An event that remembers who set it."""

    setter: threading.Thread | None = None

    def set(self) -> None:
        self.setter = threading.current_thread()
        super().set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_from_another_thread(number: signal.Signals):
    """In the main thread it could come in the middle of the event's `wait`, and wait for ever for its lock."""
    stopping, before = Watched(), signal.getsignal(number)
    with StopSignals(stopping):
        os.kill(os.getpid(), number)
        assert stopping.wait(PATIENCE_S)
    assert stopping.setter not in (None, threading.main_thread())
    assert signal.getsignal(number) == before


def test_without_a_signal_nothing_is_set_and_no_thread_is_left():
    stopping = threading.Event()
    threads = threading.active_count()
    with StopSignals(stopping):
        assert threading.active_count() == threads + 1
    assert not stopping.is_set()
    assert threading.active_count() == threads


def test_handlers_that_were_replaced_can_be_installed_again():
    stopping = threading.Event()
    with StopSignals(stopping) as signals:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.listen()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(PATIENCE_S)


def test_a_second_signal_ends_the_process_at_once():
    with subprocess.Popen([sys.executable, "-c", ASKED_TWICE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for expected in ("listens\n", "asked\n"):
            assert process.stdout.readline() == expected
            process.send_signal(signal.SIGTERM)
        until(lambda: process.poll() is not None, "it ends")
    assert process.returncode == -signal.SIGTERM
