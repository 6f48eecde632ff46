"""A queue for programs without an event loop: the same names as `AsyncQueue`, and each call returns when it is done.

Everything happens in one thread that all queues of the process share (loop_thread.py), so that heartbeats go on while a worker works.
A Queue may be used by several threads at once, and by a fork, which opens connections of its own.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from penstock.client.queues.async_queue import WAIT_SECONDS, AsyncQueue
from penstock.client.queues.choices import Choices
from penstock.client.queues.heartbeat import log
from penstock.client.queues.loop_thread import loop_thread
from penstock.client.queues.messages import QueueMessage
from penstock.client.queues.options import QueueOptions, RedriveOptions, SendOptions
from penstock.client.queues.redriving import Redrive
from penstock.client.queues.spans import Moment, Span
from penstock.client.queues.values import Content, Counts, Draft, Found, QueueView


class Queue:
    """Takes what `AsyncQueue` takes. Use it in `with`, or close() it, or leave it: connections end with the program."""

    def __init__(self, name: str, **options: Unpack[QueueOptions]) -> None:
        self.name = name
        self._options = options
        self._owner_pid = os.getpid()
        self._own = AsyncQueue(name, **options)

    # Out

    def send(self, body: Content, **options: Unpack[SendOptions]) -> str:
        """Returns the message's id once it is stored as safely as the queue promises."""
        return loop_thread().wait_for(self._within.send(body, **options))

    def send_many(self, messages: Iterable[Content | Draft]) -> list[str]:
        """In their order, a thousand at a time. Raises SendFailed where some were refused; the others are sent all the same."""
        return loop_thread().wait_for(self._within.send_many(messages))

    def cancel(self, id: str) -> bool:
        """Takes a message back that nobody holds, as if it had never been sent. False where it is finished, or somebody has it."""
        return loop_thread().wait_for(self._within.cancel(id))

    # In

    def receive(self, max: int = 10, *, lease: Span | None = None, wait: Span = WAIT_SECONDS) -> list[QueueMessage]:
        """Up to `max` messages, as soon as there is one; none when there was none for `wait` seconds."""
        return [QueueMessage(each) for each in loop_thread().wait_for(self._within.receive(max, lease=lease, wait=wait))]

    def messages(self, *, ahead: int = 1, lease: Span | None = None, idle: Span | None = None) -> Iterator[QueueMessage]:
        """One by one, for ever, or until nothing has come for `idle` seconds. `ahead` are taken at once: faster where each is done quickly,
        and their leases run while they wait. Those that are left when the loop is ended are given back."""
        while True:
            batch = self.receive(ahead, lease=lease, wait=WAIT_SECONDS if idle is None else idle)
            if not batch and idle is not None:
                return
            try:
                while batch:
                    yield batch.pop(0)
            finally:
                for left in batch:
                    left.release()

    def __iter__(self) -> Iterator[QueueMessage]:
        return self.messages()

    def work(self, step: Callable[[QueueMessage], object], *, lease: Span | None = None, idle: Span | None = None) -> int:
        """Calls `step` with each message, for ever, or until nothing has come for `idle` seconds; returns how many were done.

        A message is done when `step` returns. What it raises is logged, kept with the message as the reason, and ends nothing: the
        message is tried again as the queue says, and the next one is taken.
        """
        done = 0
        for message in self.messages(lease=lease, idle=idle):
            try:
                with message:
                    step(message)
                done += 1
            except Exception:
                log.exception("message %s of queue %s failed (attempt %d)", message.id, self.name, message.attempt)
        return done

    def ack_many(self, messages: Sequence[QueueMessage]) -> None:
        """In one call. Raises LeaseLost, after all others are finished, where some were not ours any more."""
        loop_thread().wait_for(self._within.ack_many([each.within for each in messages]))

    # The queue itself

    def create(self, **choices: Unpack[Choices]) -> None:
        """Raises QueueDiffers where there is a queue of this name, whatever its settings."""
        loop_thread().wait_for(self._within.create(**choices))

    def ensure(self, **choices: Unpack[Choices]) -> bool:
        """Makes it unless it is there with what was chosen; True: it is new. Raises QueueDiffers where something of that differs."""
        return loop_thread().wait_for(self._within.ensure(**choices))

    def configure(self, **choices: Unpack[Choices]) -> None:
        """Changes what was chosen; the rest stays. It holds for what is decided from now on."""
        loop_thread().wait_for(self._within.configure(**choices))

    def describe(self) -> QueueView:
        return loop_thread().wait_for(self._within.describe())

    def delete(self) -> None:
        """With all that is in it."""
        loop_thread().wait_for(self._within.delete())

    # What is in it

    def counts(self) -> Counts:
        return loop_thread().wait_for(self._within.counts())

    def peek(self, max: int = 10, *, states: Sequence[str] = (), after: str | Found = "") -> list[Found]:
        """Messages as they stand, without taking them: in the order they were sent, from behind the one with the id `after`. Without
        states (ready, leased, delayed, blocked, burying, finished) all that are unfinished."""
        return loop_thread().wait_for(self._within.peek(max, states=states, after=after))

    def find(self, id: str) -> Found | None:
        """What became of a message. None: it was never here, or it is long forgotten."""
        return loop_thread().wait_for(self._within.find(id))

    def purge(self) -> None:
        """Finishes everything that was sent before, whoever holds it."""
        loop_thread().wait_for(self._within.purge())

    def pause(self) -> None:
        """Nothing is lent any more. What is lent may be settled; sends go on."""
        loop_thread().wait_for(self._within.pause())

    def resume(self) -> None:
        loop_thread().wait_for(self._within.resume())

    def rewind(
        self, to: Moment | None = None, *, id: str | None = None, offset: int | None = None, partition: int = 0
    ) -> int:  # fmt: skip
        """Everything that was sent at that time or later is ready again, finished or not; how many these are. Or, in one partition,
        everything from the message with an id on, or from an offset on. Only of queues that keep what is done (`keep=True`)."""
        return loop_thread().wait_for(self._within.rewind(to, id=id, offset=offset, partition=partition))

    def redrive(self, **options: Unpack[RedriveOptions]) -> Redrive:
        """Begins to send dead letters of this queue back: each to where it came from, or all to the queue `to`. `AsyncQueue.redrive` says
        what may be chosen."""
        return Redrive(loop_thread().wait_for(self._within.redrive(**options)))

    def redrives(self) -> list[Redrive]:
        """The one that runs and the last few that ended, whoever began them; the latest first."""
        return [Redrive(each) for each in loop_thread().wait_for(self._within.redrives())]

    # The end

    def close(self) -> None:
        loop_thread().wait_for(self._within.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _within(self) -> AsyncQueue:
        if os.getpid() != self._owner_pid:  # A fork: the connections are its parent's.
            self._owner_pid, self._own = os.getpid(), AsyncQueue(self.name, **self._options)
        return self._own
