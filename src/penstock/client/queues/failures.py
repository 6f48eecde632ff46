"""What can go wrong for a program that uses a queue: what happened, and what to do about it.

`code` is the door's name for it. Classes are for what a program would handle differently;
everything else that a node refuses is `Refused`, in the node's words.
"""

from penstock.client.complaints import ClientError


class QueueError(ClientError):
    """Whatever goes wrong with a queue."""


class Unreachable(QueueError):
    """No node answered for as long as the queue has patience. Nothing was done, or what was done may safely be done again."""


class WrongAddress(QueueError, ValueError):
    """What was given for the address of a node is none. Nothing was asked of anybody."""


class InDoubt(QueueError):
    """The connection broke after the request had gone out, and it is none that may be sent twice: it was carried out, or not."""


class QueueMissing(QueueError):
    """There is no queue of this name."""


class QueueDiffers(QueueError):
    """There is a queue of this name, with other settings than those that were wanted."""


class QueueFull(QueueError):
    """The queue takes no more messages, or lends no more, until some are done."""


class LeaseLost(QueueError):
    """The message is not this worker's any more: its lease has lapsed, and it was or will be given to another one."""


class NotAvailable(QueueError):
    """The node could not do it now: a partition without a leader, a disk that is full, a node that is just starting."""


class NotAllowed(QueueError):
    """The node wants signed requests, and this one was not signed with a key that it knows."""


class Refused(QueueError):
    """What was asked for cannot be done; the words are the node's."""


class SendFailed(QueueError):
    """Some messages of `send_many` were not taken. `ids` has an id for each that was, and None for each that was not; `problems` says
    why, by their places in what was sent."""

    def __init__(self, problem: str, advice: str, ids: list[str | None], problems: dict[int, QueueError]) -> None:
        super().__init__(problem, advice, next(iter(problems.values())).code)
        self.ids = ids
        self.problems = problems


_KEYS = "give a key that the node knows: access_key= and secret_key=, or PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY"
_KINDS: dict[str, tuple[type[QueueError], str]] = {
    "no_such_queue": (QueueMissing, "create it: penstock queues create {queue}, or queue.ensure()"),
    "not_a_queue": (
        QueueMissing,
        "use another name, or make a queue of the topic: penstock topics alter {queue} --config queue.enabled=true",
    ),
    "exists_with_other_settings": (QueueDiffers, "look at it: penstock queues describe {queue}; then ask for what it has, or change it"),
    "full": (QueueFull, "let workers finish some first, or raise the queue's limit"),
    "in_flight_limit": (QueueFull, "settle some of what is lent first"),
    "too_large": (Refused, "send less at once, or store the rest elsewhere and send where it is"),
    "lease_lost": (LeaseLost, "take longer leases (lease=), or keep them (heartbeat=True and `with message:`)"),
    "invalid_handle": (Refused, "use the receipt as it came, on the queue that it came from"),
    "busy": (Refused, "wait until the other one has ended, or cancel it"),
    "not_available": (NotAvailable, "come again in a moment"),
    "ServiceUnavailable": (NotAvailable, "come again in a moment"),
    "RequestThrottled": (NotAvailable, "come again in a moment, and less often"),
    "InvalidSecurity": (NotAllowed, _KEYS),
    "AccessDeniedException": (NotAllowed, _KEYS),
    "UnrecognizedClientException": (NotAllowed, _KEYS),
    "MissingAuthenticationTokenException": (NotAllowed, f"the node wants signed requests: {_KEYS}"),
    "IncompleteSignatureException": (NotAllowed, _KEYS),
    "InvalidSignatureException": (NotAllowed, "check secret_key=, and the clock of this machine"),
    "UnknownOperationException": (Refused, "the node is of another version than this client: use the same"),
}


def refusal(code: str, words: str, queue: str) -> QueueError:
    """The node's no, as the class that a program would look for."""
    kind, advice = _KINDS.get(code, (Refused, ""))
    return kind(words or code, advice.format(queue=queue), code)
