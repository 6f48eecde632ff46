"""The actions `Penstock.*`: what Penstock's own clients say beyond SQS, in the same protocol, at the same port.

A request is a POST to any path with `X-Amz-Target: Penstock.<Action>` and a JSON object (at most 8 MiB) as its body, the answer is 200 and
a JSON object. A refusal is `{"__type": "penstock#<code>", "message": "…"}` with the codes of `broker.queues.calls.Code` (`no_such_queue`,
`invalid`, `full` …): 400, or 503 for `not_available`, which may be tried again. A queue is called by its name. Times are wall milliseconds,
spans are milliseconds; `?` marks what may be left out.

Bytes: a text (valid UTF-8) travels as a string under the plain name, anything else in base64 under `<Name>Base64`: a message has `Body` or
`BodyBase64`, and `Key` or `KeyBase64` (or neither). Headers are a list of pairs `[name, value]`, in order; a value is a string, null, or
`{"Base64": "…"}`. `penstock.*` headers cannot be sent: they are written from the options. On receive all headers are there.
An answer has about 12 MiB of messages at most (Peek: 8 MiB), but at least one: fewer than Max does not mean that there are no more.

    action         request                                                    answer
    CreateQueue    Queue, Settings? {name: text}, Partitions? (1), Replicas?  IsNew (false: it is there with these settings)
    ConfigureQueue Queue, Settings {name: text or null for the default}
    DeleteQueue    Queue
    DescribeQueue  Queue                                                      Queue, TopicId, Partitions, Settings {name: text}
    ListQueues     Prefix?, After?, Max? (1 to 1000)                          Queues [name], HasMore
    Send           Queue, Messages [1 to 1000 of Draft]                       Results [Sent or Refused, in order]
    Receive        Queue, Max? (1 to 1000; 1), LeaseMs?, WaitMs? (to 60000),  Messages [Lent] (left out: none)
                   Who?, AttemptId?, IsAgain? (an attempt that was asked
                   for before)
    Settle         Queue, Orders [1 to 1000 of Order], Who?                   Verdicts [Verdict or Refused, in order]
    Cancel         Queue, Ids [1 to 1000]                                     Verdicts [Verdict or Refused, in order]
    Find           Queue, Id                                                  Message? (left out: it was never here)
    Peek           Queue, States? [state], Max? (1 to 1000; 10),              Messages [Peeked]
                   After? (id, or partition/offset)
    Purge          Queue
    Pause          Queue
    Resume         Queue
    Rewind         Queue, one of ToMs, ToId, ToOffset (with Partition?: 0)    Count (of messages from there on)
    Counts         Queue                                                      Ready, Leased, Delayed, Burying, OldestMs, Finished,
                                                                              Dropped, IsPaused
    Redrive        Queue, Target?, Filter?, PerSecondMax?, Max?, IsDryRun?    Task
    RedriveTasks   Queue                                                      Tasks [Task], the latest first
    CancelRedrive  Handle                                                     Task

    Draft     Body|BodyBase64, Key|KeyBase64?, Headers?, Priority? (0 to 9), DelayMs?, DeliverAtMs?, TtlMs?, Group?, Dedup?
    Sent      Id, Partition, Offset, SentMs, IsDuplicate
    Refused   Code, Message
    Lent      Id, Handle, Partition, Offset, Attempt (1 for the first), DeadlineMs, LeftMs (until then), FirstTakenMs, SentMs,
              Body|BodyBase64, Key|KeyBase64?, Headers?
    Order     Handle, Verb (done, release, return, reject, extend), DelayMs?, Reason?
    Verdict   Outcome (ok, gone, lost, unknown, too_long), DeadlineMs? (of the lease; when it may be taken again, after release)
    Peeked    Id, Partition, Offset, State (ready, leased, delayed, blocked, burying, finished), Attempts, ReadyAtMs, Who, SentMs,
              Body|BodyBase64? (neither: the record is gone), Key|KeyBase64?, Headers?, History? [TakenMs, EndedMs, Who, Reason]
    Filter    Reason?, Source?, FailedAfterMs?, FailedBeforeMs?, Ids? (to 100000)
    Task      Handle, Queue, Target, Status (running, completed, cancelling, cancelled, failed), StartedMs, ToMove, Moved, Failure,
              ByTarget {queue: count}, IsDryRun, PerSecondMax
"""

from typing import Any

from penstock.http.sqs.shapes import BLOB, BOOLEAN, INTEGER, STRING, Shape, Type, list_of, map_of, nullable, structure

COUNT_MAX = 1_000  # Messages of one request.


def _anything(value: object, name: str) -> None:
    """Checked where it is read."""


HEADERS = list_of(Type("pair of name and value", _anything, Any))

DRAFT = Shape(
    {
        "Body": STRING, "BodyBase64": BLOB, "Key": STRING, "KeyBase64": BLOB, "Headers": HEADERS, "Priority": INTEGER, "DelayMs": INTEGER,
        "DeliverAtMs": INTEGER, "TtlMs": INTEGER, "Group": STRING, "Dedup": STRING,
    },
)  # fmt: skip
ORDER = Shape({"Handle": STRING, "Verb": STRING, "DelayMs": INTEGER, "Reason": STRING}, ("Handle", "Verb"))
FILTER = Shape({"Reason": STRING, "Source": STRING, "FailedAfterMs": INTEGER, "FailedBeforeMs": INTEGER, "Ids": list_of(STRING)})

_QUEUE = Shape({"Queue": STRING}, ("Queue",))

NATIVE_SHAPES: dict[str, Shape] = {
    "CreateQueue": Shape({"Queue": STRING, "Settings": map_of(STRING), "Partitions": INTEGER, "Replicas": INTEGER}, ("Queue",)),
    "ConfigureQueue": Shape({"Queue": STRING, "Settings": map_of(nullable(STRING))}, ("Queue", "Settings")),
    "DeleteQueue": _QUEUE,
    "DescribeQueue": _QUEUE,
    "ListQueues": Shape({"Prefix": STRING, "After": STRING, "Max": INTEGER}),
    "Send": Shape({"Queue": STRING, "Messages": list_of(structure(DRAFT, "Draft"))}, ("Queue", "Messages")),
    "Receive": Shape(
        {
            "Queue": STRING, "Max": INTEGER, "LeaseMs": INTEGER, "WaitMs": INTEGER, "Who": STRING, "AttemptId": STRING, "IsAgain": BOOLEAN,
        },
        ("Queue",),
    ),
    "Settle": Shape({"Queue": STRING, "Orders": list_of(structure(ORDER, "Order")), "Who": STRING}, ("Queue", "Orders")),
    "Cancel": Shape({"Queue": STRING, "Ids": list_of(STRING)}, ("Queue", "Ids")),
    "Find": Shape({"Queue": STRING, "Id": STRING}, ("Queue", "Id")),
    "Peek": Shape({"Queue": STRING, "States": list_of(STRING), "Max": INTEGER, "After": STRING}, ("Queue",)),
    "Purge": _QUEUE,
    "Pause": _QUEUE,
    "Resume": _QUEUE,
    "Rewind": Shape({"Queue": STRING, "ToMs": INTEGER, "ToId": STRING, "ToOffset": INTEGER, "Partition": INTEGER}, ("Queue",)),
    "Counts": _QUEUE,
    "Redrive": Shape(
        {
            "Queue": STRING, "Target": STRING, "Filter": structure(FILTER, "Filter"), "PerSecondMax": INTEGER, "Max": INTEGER,
            "IsDryRun": BOOLEAN,
        },
        ("Queue",),
    ),
    "RedriveTasks": _QUEUE,
    "CancelRedrive": Shape({"Handle": STRING}, ("Handle",)),
}  # fmt: skip
