"""Loads of ledgers that nobody needs any more end, and what the log has lost is known after another load."""

import pytest
from broker.queues.test_ledgers import QUEUE, ledger_of, opened, sent
from serving import Serving, patient_s
from waiting import stays_async, until_async

from penstock.broker.queues.calls import Draft
from penstock.broker.trimming import trim
from penstock.errors import DiskFull
from penstock.partition.leader import Leader
from penstock.partition.partition import Partition
from penstock.queues.commands import EARLIEST, Start
from penstock.vocabulary import Offset

ALL_LOOPS = True


async def test_a_load_whose_partition_is_led_anew_meanwhile_ends(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for a watermark of which nobody told it any more; some such loads, and no ledger of the node was loaded again."""
    queues = await opened(serving)
    await sent(queues, Draft(b"one"))
    with monkeypatch.context() as patched:
        patched.setattr(Leader, "may_tell_end", property(lambda self: False))  # As long as followers lag behind a new leader.
        for _ in range(6):
            serving.node.ledgers.partition_led(ledger_of(serving).data)
            await stays_async(lambda: ledger_of(serving).coordinator.state is None)
    serving.node.ledgers.partition_led(ledger_of(serving).data)
    assert [each.body for each in await queues.take(QUEUE, 1, wait_s=patient_s(10.0))] == [b"one"]


async def test_what_was_deleted_while_the_ledger_could_not_write_it_down_is_known_after_a_load(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order to write it down went with the state, and nobody gave it again."""
    queues = await opened(serving)
    await sent(queues, *[Draft(b"%d" % at) for at in range(10)])
    ledger, append = ledger_of(serving), Partition.append
    await ledger.ask(lambda asker: Start(asker, "a share group", EARLIEST))
    ledger.following.advanced(ledger.data, 0)
    await serving.node.ledgers.look_at(ledger, is_forced=True)  # A checkpoint knows of all ten.

    def full(partition: Partition, *arguments: object, **options: object) -> object:
        if partition is ledger.companion:
            raise DiskFull("no room")
        return append(partition, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", full)
        await trim(serving.node, ledger.data, Offset(7))
        ledger.following.look_at_start()
        ledger.coordinator.reload("a test")
    await until_async(lambda: ledger.coordinator.state is not None)
    await until_async(lambda: ledger.state.base_of_all == 7)
