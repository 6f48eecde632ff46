"""A ledger as simple as can be: a list of messages, looked through from the beginning for every question.

It is slow, keeps no index, knows no records and cannot be restored; so there is little that it could get wrong.
"""

from dataclasses import dataclass, field

from penstock.queues.commands import ATTEMPT_ID_MS, Settlement, Verb
from penstock.queues.policy import LEASE_MS_MAX, Policy
from penstock.queues.replies import Code
from penstock.queues.states import State

WRITTEN_WITHIN_MS = 10_000  # How exactly a queue's time to live is kept.
READY, DELAYED, LEASED, BURYING, DONE = State.READY, State.DELAYED, State.LEASED, State.BURYING, State.DONE


@dataclass
class Message:
    offset: int
    priority: int = 4
    due_ms: int = 0  # Its own time, or what the queue's delay says.
    expires_at: int = 0
    group: bytes = b""
    is_duplicate: bool = False
    written_ms: int = 0
    has_own_time: bool = False  # Its sender has said when.
    is_exempt: bool = False  # From the queue's delay.
    deliver_at: int = 0  # With what it waits behind.


@dataclass
class Standing:
    """Of one message in one ledger."""

    state: State = READY
    not_before: int = 0
    attempts: int = 0
    lease: int = 0
    deadline: int = 0
    place: int = -1
    first_ms: int = 0
    taken_ms: int = 0
    who: str = ""
    is_heard: bool = False  # Somebody has extended this lease, or was given it once more.
    is_let_go: bool = False  # Its last holder has given it back.
    failures: list[tuple[int, int, str, str]] = field(default_factory=list)


class Book:
    """One group's ledger."""

    def __init__(self, policy: Policy, messages: list[Message], base: int = 0) -> None:
        self.policy = policy
        self.messages = messages
        self.base = base  # Messages below were done when it began.
        self.end = 0  # Of the log.
        self.standings: dict[int, Standing] = {}
        self.next_lease = 1
        self.is_paused = False
        self.attempts: dict[str, tuple[int, list[tuple[int, int]]]] = {}  # When, and offsets with leases, by attempt id.

    def of(self, offset: int) -> Standing:
        if offset not in self.standings:
            self.standings[offset] = Standing(DONE if offset < self.base else READY, place=offset)
        return self.standings[offset]

    def state(self, message: Message, now: int) -> State:
        standing = self.of(message.offset)
        if standing.state is not READY:
            return standing.state
        if message.is_duplicate:
            return DONE  # As good as.
        is_waiting = max(message.deliver_at if standing.attempts == 0 else 0, standing.not_before) > now
        return DELAYED if is_waiting else READY

    def open(self) -> list[Message]:
        return [message for message in self.messages if self.of(message.offset).state is not DONE]

    # Taking

    def take(self, count: int, lease_ms: int | None, who: str, now: int, attempt: str = "") -> list[tuple[int, int]]:
        """(offset, attempt) of each."""
        if again := self._again(attempt, now):
            for standing in again.values():
                standing.deadline, standing.is_heard = now + (self.policy.lease_ms if lease_ms is None else lease_ms), True
            return [(offset, standing.attempts) for offset, standing in again.items()]
        in_flight = sum(self.of(message.offset).state is LEASED for message in self.messages)
        if self.is_paused:
            return []
        given = []
        for _ in range(min(count, self.policy.in_flight_max - in_flight)):
            message = self._next(now, given)
            if message is None:
                break
            given.append(message)
        for message in given:
            standing = self.of(message.offset)
            standing.state, standing.attempts, standing.lease = LEASED, standing.attempts + 1, self.next_lease
            standing.deadline = now + (self.policy.lease_ms if lease_ms is None else lease_ms)
            standing.first_ms, standing.taken_ms, standing.who = standing.first_ms or now, now, who
            standing.is_heard = standing.is_let_go = False
            self.next_lease += 1
        if given and attempt:
            self.attempts[attempt] = (now, [(message.offset, self.of(message.offset).lease) for message in given])
        return [(message.offset, self.of(message.offset).attempts) for message in given]

    def _again(self, attempt: str, now: int) -> dict[int, Standing]:
        """What is still held of the batch that the same attempt was given."""
        when, batch = self.attempts.get(attempt, (0, []))
        held = [(offset, self.of(offset)) for offset, lease in batch if when + ATTEMPT_ID_MS > now and self.of(offset).lease == lease]
        return {offset: standing for offset, standing in held if standing.state is LEASED and standing.deadline > now}

    def _next(self, now: int, given: list[Message]) -> Message | None:
        ready = [each for each in self.messages if self._may_be_given(each, now) and each not in given]
        if self.policy.is_fifo:
            ready = [each for each in ready if not each.group or not self._is_locked(each, now)]
            last = given[-1].group if given else b""
            same = [each for each in ready if each.group and each.group == last]
            if same:
                return min(same, key=lambda each: each.offset)
            ready = [each for each in ready if not self._has_one_before(each, ready)]
        every = self.policy.starvation_every
        if every and (self.next_lease + len(given)) % every == 0:
            return min(ready, key=lambda each: (self.of(each.offset).place, each.offset), default=None)
        return min(ready, key=lambda each: self._rank(each, now), default=None)

    def _rank(self, message: Message, now: int) -> tuple[int, int, int]:
        """A FIFO group stands in line with its first one."""
        if self.policy.is_fifo and message.group:
            same = (each for each in self.messages if each.group == message.group and self._may_be_given(each, now))
            message = min(same, key=lambda each: each.offset)
        return -self.policy.level_of(message.priority), self.of(message.offset).place, message.offset

    def _may_be_given(self, message: Message, now: int) -> bool:
        return self.state(message, now) is READY and not 0 < message.expires_at <= now

    def _is_locked(self, message: Message, now: int) -> bool:
        """One of the group before it is in flight, or waits for its next try."""
        for each in self.messages:
            standing = self.of(each.offset)
            is_held = standing.state is LEASED or (standing.state is READY and standing.not_before > now)
            if each.group == message.group and each.offset < message.offset and is_held:
                return True
        return False

    def _has_one_before(self, message: Message, ready: list[Message]) -> bool:
        return bool(message.group) and any(each.group == message.group and each.offset < message.offset for each in ready)

    # Settling

    def settle(self, item: Settlement, now: int) -> Code:
        offset, lease, verb, delay_ms, reason = item.offset, item.lease, item.verb, item.delay_ms, _cut(item.reason)
        if not 0 <= offset < self.end:
            return Code.UNKNOWN
        message = next((each for each in self.messages if each.offset == offset), None)
        if message is None:
            return Code.GONE  # No message is there.
        standing = self.of(offset)
        if standing.state is DONE:
            return Code.GONE
        if standing.lease == 0:
            return Code.UNKNOWN
        if standing.state is not LEASED or standing.lease != lease or standing.deadline <= now:
            is_forgiven = self.policy.is_lenient and not self.policy.is_fifo and standing.state is not BURYING
            if is_forgiven and verb is Verb.DONE and lease <= standing.lease:
                standing.state = DONE
                return Code.OK
            if is_forgiven and verb is Verb.EXTEND and lease == standing.lease and not self._is_expired(message, now):
                return self._take_up_again(message, delay_ms, now)
            return Code.LOST
        return self._settle_held(message, verb, delay_ms, reason, now)

    def _settle_held(self, message: Message, verb: Verb, delay_ms: int | None, reason: str, now: int) -> Code:
        standing = self.of(message.offset)
        if verb is Verb.DONE:
            standing.state = DONE
        elif verb is Verb.RELEASE:
            self.give_back(message, delay_ms, now, reason)
        elif verb is Verb.REJECT:
            self.bury(message, now, reason)
        elif verb in (Verb.UNDO, Verb.RETURN):
            if verb is Verb.UNDO and standing.is_heard:
                return Code.LOST
            standing.state, standing.not_before = DONE if self._is_expired(message, now) else READY, 0
            standing.attempts -= 1
            standing.is_let_go = True
        elif delay_ms == 0:
            self.give_back(message, 0, now, None)
        else:
            deadline = now + (self.policy.lease_ms if delay_ms is None else delay_ms)
            if deadline > standing.taken_ms + LEASE_MS_MAX:
                return Code.TOO_LONG
            standing.deadline, standing.is_heard = deadline, True
        return Code.OK

    def _take_up_again(self, message: Message, delay_ms: int | None, now: int) -> Code:
        standing = self.of(message.offset)
        if standing.state is READY:
            if delay_ms == 0:
                return Code.OK
            in_flight = sum(self.of(each.offset).state is LEASED for each in self.messages)
            if standing.is_let_go or in_flight >= self.policy.in_flight_max:
                return Code.LOST
            if now + (delay_ms or self.policy.lease_ms) <= standing.taken_ms + LEASE_MS_MAX:
                standing.state = LEASED
        return self._settle_held(message, Verb.EXTEND, delay_ms, "", now)

    def give_back(self, message: Message, delay_ms: int | None, now: int, reason: str | None) -> None:
        standing, policy = self.of(message.offset), self.policy
        if self._is_expired(message, now):
            standing.state = DONE
        elif policy.deliveries_max and standing.attempts >= policy.deliveries_max:
            self.bury(message, now, reason or "")
        else:
            if reason is not None:
                standing.failures.append((standing.taken_ms, now, standing.who, reason))
            if delay_ms is None:
                delay_ms = policy.backoff.delay_ms(standing.attempts, 0.5)
            standing.state, standing.not_before, standing.is_let_go = READY, now + delay_ms if delay_ms else 0, reason != "lapsed"
            is_sent_back = policy.back_after and standing.attempts >= policy.back_after and not policy.is_fifo
            standing.place = self.end if is_sent_back else message.offset

    def bury(self, message: Message, now: int, reason: str) -> None:
        standing = self.of(message.offset)
        if self.policy.dead_letter:
            standing.failures.append((standing.taken_ms, now, standing.who, reason))
            standing.state = BURYING
        else:
            standing.state = DONE

    def lapse(self, now: int) -> None:
        for message in self.messages:
            standing = self.of(message.offset)
            if standing.state is LEASED and standing.deadline <= now:
                self.give_back(message, None, now, "lapsed")
            elif standing.state is READY and (message.is_duplicate or self._is_expired(message, now)):
                standing.state = DONE

    def _is_expired(self, message: Message, now: int) -> bool:
        """By its own time, or by the queue's, which counts from the last message that was written in the same ten seconds."""
        if 0 < message.expires_at <= now or not self.policy.ttl_ms:
            return 0 < message.expires_at <= now
        within = message.written_ms // WRITTEN_WITHIN_MS
        return max(each.written_ms for each in self.messages if each.written_ms // WRITTEN_WITHIN_MS == within) + self.policy.ttl_ms <= now

    # All of them

    def cancel(self, offset: int) -> bool:
        is_there = any(message.offset == offset for message in self.messages) and self.of(offset).state is READY
        if is_there:
            self.of(offset).state = DONE
        return is_there

    def buried(self, offset: int) -> bool:
        is_burying = self.of(offset).state is BURYING
        if is_burying:
            self.of(offset).state = DONE
        return is_burying

    def finish_below(self, end: int) -> None:
        for message in self.messages:
            if message.offset < end:
                self.of(message.offset).state = DONE

    def rewind(self, to: int) -> None:
        self.base = min(self.base, to)
        for message in self.messages:
            if message.offset >= to and self.of(message.offset).state in (READY, DONE):
                self.standings[message.offset] = Standing(place=message.offset)


def _cut(reason: str) -> str:
    return reason.encode()[:200].decode(errors="ignore")
