"""The read barrier: questions that wait until a majority has said that this leader still leads.

Rules: the end that a question gets is what was committed when it was asked; a round of messages that *began after* the question must be
answered by a majority in this term; and the state must be applied up to that end. No clock is trusted with any of it: a leader that was
asleep, or cut off, does not know that another one has committed since. Rounds are shared: what is asked while one is under way waits for
the next.
"""

from collections import deque

from penstock.consensus.effects import Answer, Done
from penstock.consensus.outbox import Outbox
from penstock.vocabulary import Offset


class Reads:
    __slots__ = ("_confirmed", "_waiting", "round")

    def __init__(self) -> None:
        self.round = 0  # The latest that was begun.
        self._confirmed = 0  # The latest that a majority has answered.
        self._waiting: deque[tuple[int, Offset, object]] = deque()  # The round that is needed, the end, whom to answer.

    def __len__(self) -> int:
        return len(self._waiting)

    def ask(self, token: object, committed_end: Offset) -> None:
        self._waiting.append((self.round + 1, committed_end, token))

    def begin_round(self) -> bool:
        """Whether a new round has begun and everybody is to be asked."""
        if self._confirmed < self.round or not self._waiting or self._waiting[-1][0] <= self.round:
            return False
        self.round += 1
        return True

    def confirm(self, round_number: int) -> None:
        self._confirmed = max(self._confirmed, round_number)

    def answer(self, applied_end: Offset, out: Outbox) -> None:
        while self._waiting and self._waiting[0][0] <= self._confirmed and self._waiting[0][1] <= applied_end:
            _, end, token = self._waiting.popleft()
            out.add(Answer(token, Done(end)))

    def abandon(self) -> list[object]:
        tokens = [token for _, _, token in self._waiting]
        self._waiting.clear()
        return tokens
