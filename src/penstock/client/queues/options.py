"""What a queue can be told, for those who pass it on. The classes themselves say what it means and what holds without."""

from collections.abc import Iterable
from typing import TypedDict

from penstock.client.queues.spans import Moment, Span
from penstock.client.queues.values import Content, Headers


class ReachOptions(TypedDict, total=False):
    """How a node is reached."""

    patience: Span
    access_key: str | None
    secret_key: str | None


class QueueOptions(ReachOptions, total=False):
    url: str | None
    lease: Span | None
    heartbeat: bool
    worker: str | None
    resend: bool


class SendOptions(TypedDict, total=False):
    key: Content | None
    priority: int | None
    delay: Span | None
    at: Moment | None
    ttl: Span | None
    group: str
    dedup: str
    headers: Headers


class RedriveOptions(TypedDict, total=False):
    to: str
    reason: str
    source: str
    failed_after: Moment | None
    failed_before: Moment | None
    ids: Iterable[str]
    limit: int
    rate: int
    dry_run: bool
