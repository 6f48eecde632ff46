"""Writes the pages of docs/reference/ that are made from the code, or says that one is out of date.

    python scripts/reference.py [--check]

A page written by hand would be wrong within a month; these cannot be, because `make check` compares them.
"""

import sys
from pathlib import Path

from command_line import cli_page
from partition_moves import partitions_page
from spark_settings import spark_page

from penstock.consensus.roles import MOVES as ROLE_MOVES
from penstock.groups.states import MOVES
from penstock.http.api.openapi import statuses_of
from penstock.http.api.requests import Route
from penstock.http.api.routes import COMPONENTS, PREFIX, ROUTES
from penstock.http.api.schemas import Schema
from penstock.queues.states import MOVES as MESSAGE_MOVES
from penstock.server.configuration import PLACES
from penstock.settings import GROUP_SETTINGS, KAFKA_NAMES_WITHOUT_EFFECT, LONG_MAX, NODE_SETTINGS, TOPIC_SETTINGS, Setting, Value
from penstock.transactions.states import MOVES as TRANSACTION_MOVES

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"

HEAD = """\
# Settings

<!-- Made by `make reference` from src/penstock/settings/ and server/configuration.py; do not edit. -->

Every setting can be given three ways; the first that speaks wins:

1. a flag: `--set num.partitions=3` (the places of a node have flags of their own, such as `--data-dir`);
2. a variable: `PENSTOCK_NUM_PARTITIONS=3` (upper case, `_` for `.`);
3. a TOML file, named by `--config` or `PENSTOCK_CONFIG`: `"num.partitions" = 3`.

A name that does not exist is refused, with the nearest one that does.
"""

PLACES_HEAD = """
## Where a node lives

| name | flag | default | what it is |
|---|---|---|---|
"""

NODE_HEAD = """
## A node

Those marked *changes* can be changed while the node runs, by `penstock configs alter` or any Kafka tool, for one node or for all of them.
What was told then outranks what the node was started with, and is kept across restarts.

| name | default | allowed | while running | reason |
|---|---|---|---|---|
"""

TOPIC_HEAD = """
## A topic

`penstock topics create --config NAME=VALUE`, or any Kafka tool, sets these for one topic. With `topic.` in front (in the file: in a
`[topic]` table) they are what every topic of the node starts from. All of them can be changed while the topic is in use (`penstock topics
alter`), and with `topic.` in front while the node runs (`penstock configs alter`).

| name | default | allowed | reason |
|---|---|---|---|
"""

QUEUE_HEAD = """
### A topic that is a work queue

These are settings of topics, too. Those marked *its own* are told to each queue by itself: no node has a default for all of them.

| name | default | allowed | reason |
|---|---|---|---|
"""

GROUP_HEAD = """
## A group

Set for one group with `kafka-configs --entity-type groups`, or any Kafka tool, while it is in use. What a group was not told is as the
nodes have it (`group.` in front of the name, where there is such a setting).

| name | default | allowed | reason |
|---|---|---|---|
"""

TAIL = """
Kafka's other topic settings are taken and kept, so that tools which set them work, and have no effect here: {names}.

## A file with everything in its place

```toml
"data.dir" = "/var/lib/penstock"
kafka = "0.0.0.0:9092"
advertise = "broker.example:9092"
http = "127.0.0.1:8080"
"num.partitions" = 3

[topic]
"retention.ms" = 86_400_000
flush = "ack"
```
"""


def settings_page() -> str:
    places = "".join(
        f"| `{name}` | `--{name.replace('.', '-')}` | {_code(default)} | {what} |\n" for name, (default, what) in PLACES.items()
    )
    names = ", ".join(f"`{name}`" for name in sorted(KAFKA_NAMES_WITHOUT_EFFECT))
    return (
        HEAD + PLACES_HEAD + places + NODE_HEAD + "".join(map(_node_row, NODE_SETTINGS.values()))
        + TOPIC_HEAD + "".join(_topic_row(setting) for setting in TOPIC_SETTINGS.values() if not _is_of_queues(setting))
        + QUEUE_HEAD + "".join(_topic_row(setting) for setting in TOPIC_SETTINGS.values() if _is_of_queues(setting))
        + GROUP_HEAD + "".join(map(_topic_row, GROUP_SETTINGS.values())) + TAIL.format(names=names)
    )  # fmt: skip


def _node_row(setting: Setting) -> str:
    changes = "changes" if setting.is_dynamic else "fixed"
    return f"| `{setting.name}` | {_value(setting.default)} | {_allowed(setting)} | {changes} | {setting.reason} |\n"


def _topic_row(setting: Setting) -> str:
    allowed = _allowed(setting) + ("; its own" if setting.is_own else "")
    return f"| `{setting.name}` | {_value(setting.default)} | {allowed} | {setting.reason} |\n"


def _is_of_queues(setting: Setting) -> bool:
    return setting.name.startswith("queue.")


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return _code("true" if value else "false")
    if isinstance(value, int):
        return "no bound" if value == LONG_MAX else f"{value:,}"
    return _code(str(value))


def _allowed(setting: Setting) -> str:
    if setting.choices is not None:
        return ", ".join(_code(choice) for choice in setting.choices)
    if setting.bounds is not None:
        low, high = setting.bounds
        return f"{low:,} and up" if high == LONG_MAX else f"{low:,} to {high:,}"
    if setting.bytes_max is not None:
        return f"text of {setting.bytes_max:,} bytes at most"
    return "true, false" if isinstance(setting.default, bool) else "text"


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


HTTP_HEAD = """\
# HTTP

<!-- Made by `make reference` from src/penstock/http/api/routes.py; do not edit. -->

One port (`--http`, loopback unless told otherwise) serves all of it. There is no access control yet: it belongs on a network that you
trust.

| path | what it is |
|---|---|
| `/` | the status page: nodes, topics with offsets, lag per group, live and read-only |
| `/health` | 200 while the process lives |
| `/ready` | 200 when clients are served and may send, otherwise 503 with the reason |
| `/metrics` | what the node counts, as Prometheus reads it; lag is explained in [groups and lag](../guide/groups-and-lag.md) |
| `/api/v1/openapi.json` | the admin API below as an OpenAPI 3.1 document |
| `/api/v1/…` | the admin API |

## Rules of the admin API

- A body is JSON and says so: `Content-Type: application/json`. It has the fields below and no others.
- Names in paths are percent-encoded, a slash in a group's name too: `/groups/a%2Fb`.
- Errors have one shape: `{{"error": "<a word for programs>", "message": "<a sentence for people>"}}`.
- Lists come in pages: `limit` and `after`; `next` of an answer is the `after` of the next page, null on the last.
- What changes something is refused from pages of other sites, and a `Host` that is not this node's is refused everywhere but at `/health`
  and `/ready`: an address, `localhost`, the advertised host, or a name in the setting `http.hosts`. So no web page can use the API, or read
  names of groups and topics, through a visitor's browser.

```
curl localhost:8080{prefix}/groups/billing/lag
curl localhost:8080{prefix}/topics --json '{{"name": "orders", "partitions": 3}}'
curl localhost:8080{prefix}/groups/billing/offsets --json '{{"to": "earliest", "dry_run": false}}'
```

## Paths

| | below `{prefix}` | |
|---|---|---|
"""


def http_page() -> str:
    rows = "".join(f"| {route.method} | [`{route.path}`](#{_anchor(route)}) | {route.summary} |\n" for route in ROUTES)
    return HTTP_HEAD.format(prefix=PREFIX) + rows + "".join(map(_route, ROUTES)) + _shapes()


def _route(route: Route) -> str:
    text = f"\n### {route.method} {route.path}\n\n{route.summary}\n"
    if route.query:
        text += "\n| parameter | default | meaning |\n|---|---|---|\n"
        text += "".join(
            f"| `{each.name}` | {_code(str(each.default).lower())} | {each.schema['description']} |\n" for each in route.query
        )
    if route.body is not None:
        text += f"\nTakes {_kind(route.body)}.\n" if "$ref" in route.body else f"\nTakes:\n\n{_fields(route.body)}"
    statuses = ", ".join(str(status) for status in statuses_of(route))
    return text + f"\nAnswers {_kind(route.answer)}. Statuses: {statuses}.\n"


def _shapes() -> str:
    return "\n## Shapes\n" + "".join(f"\n### {name}\n\n{_fields(schema)}" for name, schema in COMPONENTS.items())


def _fields(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_kind(field)}{'' if name in required else ', may be left out'} | {field.get('description', '')} |\n"
        for name, field in schema["properties"].items()
    ]
    return "| field | | meaning |\n|---|---|---|\n" + "".join(rows)


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    words = [f"list of {_kind(schema['items'])}" if kind == "array" else str(kind) for kind in kinds]
    choices = f" ({', '.join(schema['enum'])})" if "enum" in schema else ""
    return " or ".join(words) + choices


def _anchor(route: Route) -> str:
    """As GitHub makes it of the heading."""
    heading = f"{route.method} {route.path}".lower()
    return "".join("-" if letter == " " else letter for letter in heading if letter.isalnum() or letter in " -_")


GROUPS_HEAD = """\
# States of a consumer group

<!-- Made by `make reference` from src/penstock/groups/states.py; do not edit. -->

As Kafka names them, and as `penstock groups describe` and Kafka's tools show them. A group that isn't there is Dead.

| from | to | when |
|---|---|---|
"""


def groups_page() -> str:
    return GROUPS_HEAD + "".join(f"| {before} | {after} | {cause} |\n" for (before, after), cause in MOVES.items())


TRANSACTIONS_HEAD = """\
# States of a transactional id

<!-- Made by `make reference` from src/penstock/transactions/states.py; do not edit. -->

As Kafka names them, and as `penstock transactions describe` and Kafka's tools show them. An id that isn't there is Dead.

| from | to | when |
|---|---|---|
"""


def transactions_page() -> str:
    moves = TRANSACTION_MOVES.items()
    return TRANSACTIONS_HEAD + "".join(f"| {before.title} | {after.title} | {cause} |\n" for (before, after), cause in moves)


QUEUES_HEAD = """\
# States of a message in a queue

<!-- Made by `make reference` from src/penstock/queues/states.py; do not edit. -->

As the ledger of a group keeps them, and as `penstock queues find` and `peek` show them. Ready and delayed are told apart by the clock.

| from | to | when |
|---|---|---|
"""


def queues_page() -> str:
    moves = MESSAGE_MOVES.items()
    return QUEUES_HEAD + "".join(f"| {before.name.lower()} | {after.name.lower()} | {cause} |\n" for (before, after), cause in moves)


CONSENSUS_HEAD = """\
# Roles of a replica of the metadata log

<!-- Made by `make reference` from src/penstock/consensus/roles.py; do not edit. -->

Every node that keeps the metadata log has one of these roles in each term. An observer is a follower that does not vote: it gets the log,
and knocks at the nodes it knows where a voter would stand for election.

| from | to | when |
|---|---|---|
"""


def consensus_page() -> str:
    return CONSENSUS_HEAD + "".join(f"| {before} | {after} | {cause} |\n" for (before, after), cause in ROLE_MOVES.items())


PAGES = {
    "settings.md": settings_page,
    "cli.md": cli_page,
    "http.md": http_page,
    "groups.md": groups_page,
    "transactions.md": transactions_page,
    "queues.md": queues_page,
    "consensus.md": consensus_page,
    "partitions.md": partitions_page,
    "spark.md": spark_page,
}


def main() -> int:
    is_check, outdated = "--check" in sys.argv[1:], 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path = REFERENCE / name
        if is_check and (not path.exists() or path.read_text(encoding="utf-8") != page()):
            print(f"{name} is out of date\n  make it anew: make reference", file=sys.stderr)
            outdated += 1
        elif not is_check:
            path.write_text(page(), encoding="utf-8")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
