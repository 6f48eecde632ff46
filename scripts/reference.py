"""Writes docs/reference/settings.md from the code, or says that it is out of date.

    python scripts/reference.py [--check]

A page written by hand would be wrong within a month; this one cannot be, because `make check` compares it.
"""

import sys
from pathlib import Path

from penstock.server.configuration import PLACES
from penstock.settings import KAFKA_NAMES_WITHOUT_EFFECT, LONG_MAX, NODE_SETTINGS, TOPIC_SETTINGS, Setting, Value

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "settings.md"

HEAD = """\
# Settings

<!-- Made by `make reference` from src/penstock/settings.py and server/configuration.py; do not edit. -->

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


def page() -> str:
    places = "".join(
        f"| `{name}` | `--{name.replace('.', '-')}` | {_code(default)} | {what} |\n" for name, (default, what) in PLACES.items()
    )
    names = ", ".join(f"`{name}`" for name in sorted(KAFKA_NAMES_WITHOUT_EFFECT))
    return (
        HEAD + PLACES_HEAD + places + NODE_HEAD + "".join(map(_node_row, NODE_SETTINGS.values()))
        + TOPIC_HEAD + "".join(map(_topic_row, TOPIC_SETTINGS.values())) + TAIL.format(names=names)
    )  # fmt: skip


def _node_row(setting: Setting) -> str:
    changes = "changes" if setting.is_dynamic else "fixed"
    return f"| `{setting.name}` | {_value(setting.default)} | {_allowed(setting)} | {changes} | {setting.reason} |\n"


def _topic_row(setting: Setting) -> str:
    return f"| `{setting.name}` | {_value(setting.default)} | {_allowed(setting)} | {setting.reason} |\n"


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
    return "true, false" if isinstance(setting.default, bool) else "text"


def _code(text: str) -> str:
    return f"`{text}`" if text else "none"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE.name} is out of date\n  make it anew: make reference", file=sys.stderr)
            return 1
        return 0
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
