"""Looking after a queue: making and changing it, looking into it, holding it up, sending its dead letters back.

Not here: the messages themselves (async_queue.py).
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Unpack

from penstock.client.queues.actions import Actions
from penstock.client.queues.choices import Choices, settings_of
from penstock.client.queues.differences import differences
from penstock.client.queues.failures import QueueDiffers
from penstock.client.queues.redriving import AsyncRedrive, Wanted
from penstock.client.queues.spans import Moment, wall_ms
from penstock.client.queues.values import Counts, Found, QueueView

DEAD_LETTERS, FIFO = "queue.dead.letter", "queue.fifo"


class AsyncUpkeep:
    def __init__(self, actions: Actions) -> None:
        self._actions = actions

    # The queue itself

    async def create(self, **choices: Unpack[Choices]) -> None:
        """Raises QueueDiffers where there is a queue of this name, whatever its settings."""
        if not await self._make(*settings_of(choices)):
            name = self._actions.queue
            raise QueueDiffers(f"queue {name!r} is there already", "use it as it is, or say ensure() where that is fine", "QueueNameExists")

    async def ensure(self, **choices: Unpack[Choices]) -> bool:
        """Makes it unless it is there with what was chosen; True: it is new. Its queue of dead letters is made too, where there is none.
        Raises QueueDiffers where something of what was chosen differs."""
        settings, partitions, replicas = settings_of(choices)
        is_new = await self._make(settings, partitions, replicas)
        if settings.get(DEAD_LETTERS):
            fifo = {name: value for name, value in settings.items() if name == FIFO}
            with suppress(QueueDiffers):  # It is there, as somebody wants it to be.
                await self._actions.of(settings[DEAD_LETTERS]).create(fifo, None, replicas)
        return is_new

    async def _make(self, settings: dict[str, str], partitions: int | None, replicas: int | None) -> bool:
        try:
            return await self._actions.create(settings, partitions, replicas)
        except QueueDiffers as differs:
            raise await self._difference(settings, differs) from None

    async def _difference(self, wanted: dict[str, str], told: QueueDiffers) -> QueueDiffers:
        """With what differs, where that is a setting."""
        words = differences((await self.describe()).settings, wanted)
        return QueueDiffers(f"{told.problem}: {', '.join(words)}", told.advice, told.code) if words else told

    async def configure(self, **choices: Unpack[Choices]) -> None:
        """Changes what was chosen; the rest stays. It holds for what is decided from now on."""
        settings, partitions, replicas = settings_of(choices)
        if partitions is not None or replicas is not None:
            raise ValueError("partitions and replicas are changed with the topic: penstock topics alter, penstock cluster reassign")
        await self._actions.configure(settings)

    async def describe(self) -> QueueView:
        return await self._actions.describe()

    async def delete(self) -> None:
        """With all that is in it."""
        await self._actions.delete()

    # What is in it

    async def counts(self) -> Counts:
        return await self._actions.counts()

    async def peek(self, max: int = 10, *, states: Sequence[str] = (), after: str | Found = "") -> list[Found]:
        """Messages as they stand, without taking them: in the order they were sent, from behind the one with the id `after`. Without
        states (ready, leased, delayed, blocked, burying, finished) all that are unfinished."""
        return await self._actions.peek(max, states, after)

    async def find(self, id: str) -> Found | None:
        """What became of a message. None: it was never here, or it is long forgotten."""
        return await self._actions.find(id)

    async def purge(self) -> None:
        """Finishes everything that was sent before, whoever holds it."""
        await self._actions.purge()

    async def pause(self) -> None:
        """Nothing is lent any more. What is lent may be settled; sends go on."""
        await self._actions.pause()

    async def resume(self) -> None:
        await self._actions.resume()

    async def rewind(
        self, to: Moment | None = None, *, id: str | None = None, offset: int | None = None, partition: int = 0
    ) -> int:  # fmt: skip
        """Everything that was sent at that time or later is ready again, finished or not; how many these are. Or, in one partition,
        everything from the message with an id on, or from an offset on. Only of queues that keep what is done (`keep=True`)."""
        if sum(each is not None for each in (to, id, offset)) != 1:
            raise ValueError("say where to rewind to: by a time, or id=, or offset= (with partition=)")
        if id is not None:
            return await self._actions.rewind({"ToId": id})
        if offset is not None:
            return await self._actions.rewind({"ToOffset": offset, "Partition": partition})
        assert to is not None
        return await self._actions.rewind({"ToMs": wall_ms(to, "to")})

    # Dead letters

    async def redrive(
        self,
        *,
        to: str = "",
        reason: str = "",
        source: str = "",
        failed_after: Moment | None = None,
        failed_before: Moment | None = None,
        ids: Iterable[str] = (),
        limit: int = 0,
        rate: int = 0,
        dry_run: bool = False,
    ) -> AsyncRedrive:
        """Begins to send dead letters of this queue back: each to where it came from, or all to the queue `to`.

        Only those that fit everything that is given: a part of their reason, the queue they came from, when they failed, their ids.
        `limit` is how many at most, `rate` how many a second. A dry run counts, and moves nothing.
        """
        wanted = Wanted(
            to=to,
            reason=reason,
            source=source,
            failed_after_ms=0 if failed_after is None else wall_ms(failed_after, "failed_after"),
            failed_before_ms=0 if failed_before is None else wall_ms(failed_before, "failed_before"),
            ids=tuple(dict.fromkeys(ids)),
            limit=limit,
            rate=rate,
            is_dry_run=dry_run,
        )
        return AsyncRedrive(self._actions, await self._actions.redrive(wanted))

    async def redrives(self) -> list[AsyncRedrive]:
        """The one that runs and the last few that ended, whoever began them; the latest first."""
        return [AsyncRedrive(self._actions, progress) for progress in await self._actions.redrives()]
