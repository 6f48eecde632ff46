"""What is done to a whole ledger, or to single messages of it by somebody who holds none of them."""

from penstock.queues import commands
from penstock.queues.commands import COUNT_MAX, EARLIEST, GROUP_BYTES_MAX, LATEST, QUEUE_GROUP, RANGE_MAX
from penstock.queues.decision import Decision
from penstock.queues.draft import Draft
from penstock.queues.headers import NAME_BYTES_MAX
from penstock.queues.lapsing import finish_unheld
from penstock.queues.ledger import Ledger
from penstock.queues.looking import find
from penstock.queues.records import Bound, Noted, Record, Turn, Turned
from penstock.queues.replies import Done, Fault, Reply
from penstock.queues.rows import read
from penstock.queues.states import State

GROUPS_MAX = 200  # Ledgers of one partition: each learns of every message.
NOTES_MAX = 100
NOTE_BYTES_MAX = 4 << 20  # A hundred thousand ids of messages, as texts.
TOPIC_ID_BYTES = 16

Turning = commands.Purge | commands.Pause | commands.Resume | commands.NoteDelay | commands.Rewind | commands.Forget


def turn(draft: Draft, command: Turning) -> tuple[list[Record], Reply]:
    ledger, wall_ms, end = draft.ledger, draft.wall_ms, draft.messages.end
    group = ledger.group
    match command:
        case commands.Pause():
            return ([] if ledger.is_paused else [Turned(group, wall_ms, Turn.PAUSED)]), Done()
        case commands.Resume():
            return ([Turned(group, wall_ms, Turn.RESUMED)] if ledger.is_paused else []), Done()
        case commands.NoteDelay():
            common, delay_ms = draft.messages.common_delay, draft.policy.delay_ms
            if common.last_ms == delay_ms:
                return [], Done()
            return [Turned(group, wall_ms, Turn.DELAYED, common.first(end) if draft.policy.is_fifo else end, delay_ms)], Done()
        case commands.Purge():
            is_soon = command.unless_since_ms is not None and command.unless_since_ms < ledger.purged_ms
            if is_soon and ledger.purged_ms <= wall_ms:  # Otherwise the clock was set back.
                return [], Done(fault=Fault.TOO_SOON)
            unfinished = end - ledger.done.base - ledger.done.bits.count
            return [Turned(group, wall_ms, Turn.PURGED, end)], Done(max(unfinished, 0))
        case commands.Rewind():
            if not 0 <= command.to_offset <= end:
                return [], Done(fault=Fault.INVALID)
            return [Turned(group, wall_ms, Turn.REWOUND, command.to_offset, end)], Done(end - command.to_offset)
        case commands.Forget():
            if group == QUEUE_GROUP:  # It is there without having been started.
                return [Turned(group, wall_ms, Turn.STARTED, end, end)], Done()
            return [Turned(group, wall_ms, Turn.FORGOTTEN)], Done()


def start(ledgers: dict[str, Ledger], command: commands.Start, end: int, wall_ms: int) -> tuple[list[Record], Reply]:
    at = {EARLIEST: 0, LATEST: end}.get(command.at, command.at)
    if at < 0 or not command.group or len(command.group.encode()) > GROUP_BYTES_MAX:
        return [], Done(fault=Fault.INVALID)
    if command.group not in ledgers and len(ledgers) >= GROUPS_MAX:
        return [], Done(fault=Fault.TOO_MANY_GROUPS)
    return [Turned(command.group, wall_ms, Turn.STARTED, at, end)], Done()


def cancel(draft: Draft, command: commands.Cancel) -> Done:
    if len(command.offsets) > COUNT_MAX:
        return Done(fault=Fault.INVALID)
    known = (offset for offset in command.offsets if 0 <= offset < draft.messages.learned_end)
    return Done(sum([finish_unheld(offset, draft) for offset in known]))


def bind(draft: Draft, command: commands.Bind) -> tuple[list[Record], Done]:
    """Answers with how many of them go there."""
    if len(command.offsets) > RANGE_MAX or len(command.topic_id) != TOPIC_ID_BYTES:
        return [], Done(fault=Fault.INVALID)
    ledger = draft.ledger
    wanted = dict.fromkeys(command.offsets)
    offsets = tuple(offset for offset in wanted if (_is_ready(draft, offset) if command.sent_off else offset in ledger.burying))
    if command.sent_off:
        for offset in offsets:
            draft.send_off(offset)
    if not offsets:
        return [], Done()
    place = command.topic_id, command.partition, ledger.next_lease
    return [Bound(ledger.group, draft.wall_ms, *place, command.sent_off, offsets)], Done(len(offsets))


def _is_ready(draft: Draft, offset: int) -> bool:
    view = find(draft.ledger, draft.messages, offset, draft.wall_ms)
    return view is not None and view.state is State.READY and offset < draft.messages.learned_end


def unbind(draft: Draft, command: commands.Unbind) -> Done:
    if len(command.offsets) > RANGE_MAX:
        return Done(fault=Fault.INVALID)
    count = 0
    for offset in dict.fromkeys(command.offsets):
        if offset in draft.ledger.burying:
            draft.come_back(offset, read(draft.ledger.rows[offset]))
            count += 1
    return Done(count)


def note(notes: dict[str, bytes], command: commands.Note) -> Decision:
    if len(command.text) > NOTE_BYTES_MAX or not 0 < len(command.name) <= NAME_BYTES_MAX:
        return Decision([], [(command.token, Done(fault=Fault.INVALID))])
    if command.text and command.name not in notes and len(notes) >= NOTES_MAX:
        return Decision([], [(command.token, Done(fault=Fault.TOO_MANY_NOTES))])
    is_news = notes.get(command.name, b"") != command.text
    return Decision([Noted(command.name, command.text)] if is_news else [], [(command.token, Done())])


def buried(draft: Draft, command: commands.Buried) -> Done:
    if len(command.offsets) > RANGE_MAX:
        return Done(fault=Fault.INVALID)
    count = 0
    for offset in command.offsets:
        if offset in draft.ledger.burying and offset not in draft.settled:
            draft.finish(offset, State.BURYING)
            count += 1
    return Done(count)


def trim(drafts: list[Draft], command: commands.Trimmed) -> Decision:
    """Whatever was there, whoever had it: the log has lost it."""
    found: list[Record] = []
    for draft in drafts:
        for run_start, run_end in draft.ledger.done.gaps(0, command.to_offset):
            draft.finish_run(run_start, run_end)
        found += draft.record(is_dropped=True)
    return Decision(found, [(command.token, Done())])
