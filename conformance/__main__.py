"""Plays the tools that were named, or all of them; prints a table; exits with 1 when a feature failed.

    python -m conformance [--record] [kcat kafkajs java-4 ...]
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from conformance.account import CODECS, Outcome, Row, as_page, as_table, count_line
from conformance.java_tools import JavaTools
from conformance.kcat import Kcat
from conformance.node import Node
from conformance.players import OURS, Player, franz_go, kafka_python, kafkajs, sarama
from conformance.workshop import ROOT, NotToBeHad

PAGE = ROOT / "docs" / "reference" / "clients.md"

AT_ONCE = 2  # Each has a node of its own; most of them wait most of the time.

# The slow ones first, so that the last ones are not waited for.
PLAYERS: dict[str, Callable[[], Player]] = {
    "java-4": lambda: JavaTools("4.3.0"),
    "java-3": lambda: JavaTools("3.9.1"),
    "kafkajs": kafkajs,
    "franz-go": franz_go,
    "sarama": sarama,
    "kcat": Kcat,
    "kafka-python": kafka_python,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description="Plays foreign Kafka clients and tools against a node.")
    parser.add_argument("--record", action="store_true", help=f"write {PAGE.relative_to(ROOT)}; only with all tools")
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"some of: {', '.join(PLAYERS)}")
    asked = parser.parse_args()
    unknown = [name for name in asked.tools if name not in PLAYERS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; known are {', '.join(PLAYERS)}")
    if asked.record and asked.tools:
        parser.error("a page is made of all tools")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        meetings = pool.map(lambda name: list(meet(PLAYERS[name]())), asked.tools or PLAYERS)
        rows = [row for meeting in meetings for row in meeting]
    print(f"\n{as_table(rows)}\n\n{count_line(rows)}")
    if asked.record:
        PAGE.write_text(as_page(rows, commit()))
    return int(any(row.outcome is Outcome.FAILED for row in rows))


def meet(player: Player) -> Iterator[Row]:
    try:
        version = player.obtain()
    except NotToBeHad as reason:
        print(f"{player.name}: not to be had: {reason}")
        yield Row(player.name, "–", "all", Outcome.NOT_TO_BE_HAD, str(reason))
        return
    print(f"{player.name}: here in version {version}", flush=True)
    began = time.monotonic()
    for feature, said in played(player):
        print(f"{player.name}: {feature}: {said}", flush=True)
        yield Row(player.name, version, feature, Outcome.OK if said == "ok" else Outcome.FAILED, "" if said == "ok" else said)
    print(f"{player.name}: done after {time.monotonic() - began:.0f} s", flush=True)


def played(player: Player) -> Iterator[tuple[str, str]]:
    """Every feature that the tool has, once, whether or not the player came to it."""
    prefix = "conformance."
    with Node() as node:
        told: dict[str, str] = {}
        try:
            for feature, said in player.play(node.bootstrap, prefix):
                told[feature] = said
        except subprocess.TimeoutExpired as late:
            print(f"  {late}")
        for feature in player.features:
            said = told.get(feature, "it never came to this")
            if said == "ok" and feature in CODECS:
                said = stored_as(node, f"{prefix}codec.{CODECS[feature]}", CODECS[feature])
            yield feature, said
        yield OURS, node.stop()


def stored_as(node: Node, topic: str, codec: str) -> str:
    """Some clients stop compressing without a word when they misread what a broker supports: look at what was written."""
    codecs = node.stored_codecs(topic)
    return "ok" if codecs == {codec} else f"stored as {', '.join(sorted(codecs))}"


def commit() -> str:
    ended = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
