"""Customers and their orders, as an honest shop would have them: most are good, some come twice, some come late, some are broken.

    day = OrderBook(seed=7, customers=100)
    for order in day.orders(1_000): ...

One seed and one start give the same orders each time, in whatever portions they are taken: an order depends on its number alone. Each says
what it is (`kind`), so that whoever checks a pipeline knows what must come out: `Outcome` adds it up.
Not here: writing them to topics (writing.py).
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from random import Random

COUNTRIES = ("DE", "FR", "IT", "NL", "PL", "ES")
SEGMENTS = ("private", "shop", "school")
FIRST_NAMES = ("Ada", "Bela", "Carl", "Dora", "Edda", "Finn", "Gita", "Hugo", "Ines", "Jan")
LAST_NAMES = ("Abel", "Brandt", "Costa", "Dubois", "Egger", "Fischer", "Greco", "Horvat")

GAP_MS = 200  # Between an order and the next: five a second, three hundred a minute.
DELIVERY_MS = 900  # From the click to the record, at most, for an order that is not late.
LATE_MS = 5 * 60_000  # Late, and still counted.
TOO_LATE_MS = 30 * 60_000
BIG_CUSTOMER_SHARE = 0.15  # One customer orders more than the others: a key that is worth looking at.


class Kind(Enum):
    GOOD = "good"
    LATE = "late"  # Out of order, yet early enough to be counted.
    TOO_LATE = "too late"
    DOUBLE = "double"  # Of an order shortly before it.
    STRANGER = "stranger"  # A good order of a customer whom the table does not know.
    BROKEN = "broken"


SHARES = {Kind.LATE: 0.04, Kind.TOO_LATE: 0.01, Kind.DOUBLE: 0.05, Kind.STRANGER: 0.01, Kind.BROKEN: 0.02}
COUNTED = (Kind.GOOD, Kind.LATE, Kind.STRANGER)
DEAD = (Kind.TOO_LATE, Kind.BROKEN)


@dataclass(frozen=True, slots=True)
class Example:
    """A record, and what it is."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    kind: Kind
    order_id: str = ""  # Empty where it is broken.
    amount_cents: int = 0


@dataclass(slots=True)
class Outcome:
    """What must come out of a pipeline that was given these orders."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    counted: set[str] = field(default_factory=set)  # The ids that must come out, each once.
    dead: int = 0  # How many must be found among the dead letters.
    revenue_cents: int = 0

    def add(self, examples: Iterable[Example]) -> "Outcome":
        for example in examples:
            self.kinds[example.kind] += 1
            if example.kind in COUNTED:
                self.counted.add(example.order_id)
                self.revenue_cents += example.amount_cents
            elif example.kind in DEAD:
                self.dead += 1
        return self


def a_while_ago(hours: float = 6.0) -> int:
    """A full minute, so many hours ago: orders for as long have happened already."""
    return int(time.time() - hours * 3_600) // 60 * 60_000


@dataclass(frozen=True, slots=True)
class OrderBook:
    seed: int = 7
    customers: int = 100
    started_ms: int = field(default_factory=a_while_ago)  # Of the first order; records much older than now would age out.

    def customer_records(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of each customer, for a compacted topic."""
        for number in range(self.customers):
            rng = Random(f"{self.seed}/customer/{number}")
            name = f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
            fields = {"name": name, "country": rng.choice(COUNTRIES), "segment": rng.choice(SEGMENTS)}
            yield _customer_id(number).encode(), json.dumps(fields).encode()

    def orders(self, count: int, *, first: int = 0) -> Iterator[Example]:
        """The orders from number `first` on."""
        return (self._order(number) for number in range(first, first + count))

    def _order(self, number: int) -> Example:
        rng = Random(f"{self.seed}/order/{number}")
        kind = _drawn(rng)
        written_ms = self.started_ms + number * GAP_MS
        if kind is Kind.DOUBLE:
            return self._double(number, rng, written_ms)
        if kind is Kind.BROKEN:
            return Example(_customer_id(rng.randrange(self.customers)).encode(), _broken(rng, number, written_ms), written_ms, kind)
        delay_ms = rng.randrange(1, DELIVERY_MS)
        if kind is Kind.LATE:
            delay_ms = rng.randrange(60_000, LATE_MS)
        elif kind is Kind.TOO_LATE:
            delay_ms += TOO_LATE_MS
        customer = f"guest-{number}" if kind is Kind.STRANGER else self._customer(rng)
        amount_cents = rng.randrange(100, 20_000)
        fields = {
            "order_id": f"o-{self.seed}-{number}", "customer_id": customer, "amount_cents": amount_cents,
            "ordered_at": _iso(written_ms - delay_ms),
        }  # fmt: skip
        return Example(customer.encode(), json.dumps(fields).encode(), written_ms, kind, str(fields["order_id"]), amount_cents)

    def _double(self, number: int, rng: Random, written_ms: int) -> Example:
        """The same bytes as an order before it, written once more: a click too many, or a producer that tried again."""
        for earlier in range(number - rng.randrange(1, 20), -1, -1):
            original = self._order(earlier)
            if original.kind in COUNTED:
                return Example(original.key, original.value, written_ms, Kind.DOUBLE, original.order_id, original.amount_cents)
        return Example(b"", b"{}", written_ms, Kind.BROKEN)  # The first orders have none before them.

    def _customer(self, rng: Random) -> str:
        return _customer_id(0 if rng.random() < BIG_CUSTOMER_SHARE else rng.randrange(self.customers))


def _drawn(rng: Random) -> Kind:
    draw = rng.random()
    for kind, share in SHARES.items():
        draw -= share
        if draw < 0:
            return kind
    return Kind.GOOD


def _broken(rng: Random, number: int, written_ms: int) -> bytes | None:
    """One thing is wrong with it, and nothing else."""
    good = {"order_id": f"o-broken-{number}", "customer_id": "c-1", "amount_cents": 100, "ordered_at": _iso(written_ms)}
    ways: list[bytes | None] = [
        None,
        b'{"order_id": "o-cut-sh',
        b"\x00\xffnot text",
        json.dumps(good | {"amount_cents": -5}).encode(),
        json.dumps(good | {"amount_cents": "ten"}).encode(),
        json.dumps(good | {"ordered_at": "yesterday"}).encode(),
        json.dumps(good | {"ordered_at": "2199-01-01T00:00:00Z"}).encode(),
        json.dumps(good | {"order_id": ""}).encode(),
        json.dumps({name: value for name, value in good.items() if name != "customer_id"}).encode(),
    ]
    return rng.choice(ways)


def _customer_id(number: int) -> str:
    return f"c-{number}"


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
