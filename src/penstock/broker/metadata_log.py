"""The metadata log, as a quorum of one: decide, append, flush, replay, and only then answer.

One command at a time: the next one is decided on an image that has everything before it. Replay therefore sees committed records only.
What was appended is carried through to its replay, whatever becomes of the one who asked: a snapshot must never miss what the log has.
When voters are added, `_commit` waits for a majority instead of for this disk alone; nothing else here changes.
A failed write or flush ends the process: a node that isn't sure of its metadata must not go on.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from penstock.cluster import records
from penstock.cluster.controller import Command, Controller, Reply
from penstock.cluster.image import ClusterImage
from penstock.env import Env
from penstock.errors import BrokenPromise, DiskFailed, DiskFull, ErrorCode, Refusal, require
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.log import Log
from penstock.log.open_files import OpenFiles
from penstock.settings import MIB
from penstock.vocabulary import METADATA_TOPIC_ID, Offset
from penstock.wire.batches import Record, decode_records, encode_batch, read_header

METADATA_DIRECTORY = "metadata"
TERM = 1  # The leader epoch of a quorum of one. Elections raise it.
SNAPSHOT_EVERY_BYTES = 4 * MIB  # Of new log: loading then reads at most about this much after the snapshot.
_BATCH_BYTES_MAX = 64 * MIB
_READ_BYTES = 1 * MIB
_SNAPSHOT_HEAD = struct.Struct(">q")  # the offset that it stands for
_LENGTH = struct.Struct(">i")


class MetadataLog:
    def __init__(self, env: Env, log: Log, image: ClusterImage, on_replayed: Callable[[records.Record], Awaitable[None]]) -> None:
        self._env = env
        self._log = log
        self._on_replayed = on_replayed
        self._turn = asyncio.Lock()
        self._committing: asyncio.Task[None] | None = None
        self.image = image

    @classmethod
    async def open(
        cls, env: Env, files: OpenFiles, *, is_clean: bool, on_replayed: Callable[[records.Record], Awaitable[None]]
    ) -> "MetadataLog":
        """Replays the log into a new image. `on_replayed` is told only of what is committed later."""
        image = ClusterImage()
        restored: list[Offset] = [Offset(0)]

        def restore(snapshot: bytes) -> None:
            restored[0] = _restore(snapshot, image)

        config = LogConfig(segment_bytes=64 * MIB, retention_ms=-1, retention_bytes=-1, checkpoint_bytes=SNAPSHOT_EVERY_BYTES)
        log = await Log.open(
            env, METADATA_DIRECTORY, LogIdentity(METADATA_TOPIC_ID, 0), config, files,
            is_clean=is_clean, restore=restore, replay=lambda header: None,
        )  # fmt: skip
        if log.failure is not None:
            raise DiskFailed(f"the metadata log is damaged: {log.failure}")
        opened = cls(env, log, image, on_replayed)
        await opened._replay_from(restored[0])
        return opened

    async def submit(self, command: Command, controller: Controller) -> tuple[Reply, ...]:
        """Decides the command and makes the decision durable. Replies come in the order of what was asked."""
        await self._turn.acquire()
        try:
            decision = controller.decide(command)
        except BaseException:
            self._turn.release()
            raise
        self._committing = asyncio.get_running_loop().create_task(self._commit_and_pass_turn_on(decision.records))
        await asyncio.shield(self._committing)
        return decision.replies

    async def close(self) -> None:
        async with self._turn:
            await self._log.close(self._snapshot())

    async def _commit_and_pass_turn_on(self, made: Sequence[records.Record]) -> None:
        try:
            if made:
                await self._commit(made)
        finally:
            self._turn.release()

    async def _commit(self, made: Sequence[records.Record]) -> None:
        wall_ms = self._env.wall_ms()
        batch = encode_batch(
            [Record(value=records.encode(record), timestamp_ms=wall_ms) for record in made],
            base_offset=self._log.end_offset,
            leader_epoch=TERM,
        )
        try:
            self._log.append(batch, read_header(batch))
        except DiskFull:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full: nothing was changed") from None
        await self._log.flush()
        for record in made:
            self.image.replay(record)
            await self._on_replayed(record)
        if self._log.wants_checkpoint:
            with suppress(DiskFull):  # The log alone says the same; the next commit tries again.
                await self._log.write_checkpoint(self._log.begin_checkpoint(self._snapshot()))

    async def _replay_from(self, offset: Offset) -> None:
        while offset < self._log.end_offset:
            data = await self._log.read_later(offset, bytes_max=_READ_BYTES, end_offset=self._log.end_offset)
            at = 0
            while at < len(data):
                header = read_header(data, at)
                for record in decode_records(data[at : at + header.size], bytes_max=_BATCH_BYTES_MAX):
                    if record.offset >= offset:
                        require(record.value is not None, "a metadata record has a value")
                        self.image.replay(records.decode(record.value or b""))
                at += header.size
                offset = Offset(header.end_offset)

    def _snapshot(self) -> bytes:
        encoded = [records.encode(record) for record in self.image.snapshot()]
        return _SNAPSHOT_HEAD.pack(self._log.end_offset) + b"".join(_LENGTH.pack(len(one)) + one for one in encoded)


def _restore(snapshot: bytes, image: ClusterImage) -> Offset:
    if not snapshot:
        return Offset(0)
    at = _SNAPSHOT_HEAD.size
    while at < len(snapshot):
        (length,) = _LENGTH.unpack_from(snapshot, at)
        at += _LENGTH.size
        image.replay(records.decode(snapshot[at : at + length]))
        at += length
    if at != len(snapshot):
        raise BrokenPromise("a metadata snapshot ends where its last record ends")
    return Offset(_SNAPSHOT_HEAD.unpack_from(snapshot)[0])
