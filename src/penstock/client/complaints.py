"""The root of everything that can go wrong here: what happened, and what to do about it, in two lines.

`code` is the name that the other side gives to the failure, for programs that must tell one from another. Not here: failures of records
(failures.py, by the names of Kafka and librdkafka) and of queues (queues/failures.py, by those of the queue door).
"""


class ClientError(Exception):
    """Whatever goes wrong here."""

    def __init__(self, problem: str, advice: str = "", code: str = "") -> None:
        super().__init__(f"{problem}\n  {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice
        self.code = code


class TimedOut(ClientError, TimeoutError):
    """The caller's patience ended. What it waited for may still happen."""


class Closed(ClientError):
    """Asked of a producer, a consumer or a queue that was closed."""
