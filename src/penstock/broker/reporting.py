"""What a node tells its operator: each sentence once, and again after a minute if it is still said.

A client may ask for damaged bytes over and over, and its words must neither fill the log nor look like a line of its own.
"""

import logging

from penstock.env import Env
from penstock.vocabulary import Instant

log = logging.getLogger("penstock")

REPEATED_AFTER_SECONDS = 60.0
SENTENCES_REMEMBERED = 100
CHARACTERS_MAX = 1_000  # Sentences quote what clients say.


class Reporter:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._told: dict[str, Instant] = {}  # When it was told; the longest not heard of first.

    def tell(self, sentence: str) -> None:
        now, sentence = self._env.now(), _on_one_line(sentence)
        told_at = self._told.pop(sentence, None)
        if told_at is None or now - told_at > REPEATED_AFTER_SECONDS:
            told_at = now
            log.warning("%s", sentence)
        self._told[sentence] = told_at
        if len(self._told) > SENTENCES_REMEMBERED:
            del self._told[next(iter(self._told))]


def _on_one_line(sentence: str) -> str:
    cut = sentence if len(sentence) <= CHARACTERS_MAX else sentence[:CHARACTERS_MAX] + " ..."
    return cut if cut.isprintable() else "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in cut)
