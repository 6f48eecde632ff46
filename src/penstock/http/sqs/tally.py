"""What the queue door counts about itself, for /metrics: answers by action and error code. Both come from tables, so there is a bound."""

from collections.abc import Iterator

from penstock.broker.metrics import Sample
from penstock.http.sqs.actions import ACTIONS

OK, UNKNOWN = "OK", "unknown"


class Tally:
    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], int] = {}
        self._good = dict.fromkeys(ACTIONS, 0)

    def add_good(self, target: str) -> None:
        self._good[target] += 1

    def add(self, target: str, code: str) -> None:
        key = (target if target in ACTIONS else UNKNOWN, code)  # Whatever strangers call an action is one thing here.
        self._answers[key] = self._answers.get(key, 0) + 1

    def samples(self, long_polls: int) -> Iterator[Sample]:
        reason = "Requests to the queue door, by action and error code."
        good = {(action, OK): count for action, count in self._good.items() if count}
        for (action, code), count in sorted((self._answers | good).items()):
            yield Sample("penstock_sqs_requests_total", "counter", reason, (("action", action), ("code", code)), count)
        yield Sample("penstock_sqs_long_polls", "gauge", "Long polls that wait at the queue door.", (), long_polls)
