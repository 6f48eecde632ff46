"""Refusals that do not pass soon, and members that ask again at once.

Clients go on after such a refusal, and some of them without a pause: thousands of times a second. So whoever asks for the same again is
kept waiting for a moment, and then looked at anew. A session of many partitions waits for all of them at once.
"""

import asyncio

from penstock.env import Env
from penstock.errors import ErrorCode, Refusal
from penstock.links.share_calls import LedgerQuestion
from penstock.vocabulary import Instant

LASTING = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.POLICY_VIOLATION)
AGAIN_SECONDS = 0.5  # About as long as a fetch waits that finds nothing.
REMEMBERED_MAX = 10_000


class Refusals:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._last: dict[LedgerQuestion, Instant] = {}  # The oldest first.

    async def pause(self, question: LedgerQuestion) -> None:
        """Whoever was refused this a moment ago waits."""
        last = self._last.get(question)
        left_s = 0.0 if last is None else last + AGAIN_SECONDS - self._env.now()
        if left_s > 0:
            await asyncio.sleep(left_s)

    def note(self, question: LedgerQuestion, refusal: Refusal) -> None:
        if refusal.code in LASTING:
            self._last.pop(question, None)
            self._last[question] = self._env.now()
            while len(self._last) > REMEMBERED_MAX or self._is_old(next(iter(self._last))):
                del self._last[next(iter(self._last))]

    def _is_old(self, question: LedgerQuestion) -> bool:
        return self._last[question] + AGAIN_SECONDS <= self._env.now()
