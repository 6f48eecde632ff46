"""The main job in one minute: start a node, create a topic, write keyed records, read them back, see where each went.

    make demo

Then, where Spark and Java are there, a data pipeline on the same node (demo_pipeline.py); `--without-pipeline` leaves it out.
Everything lives in a temporary directory and on free ports, and is gone afterwards.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ORDERS = [
    ("alice", "2 coffees"), ("bob", "1 tea"), ("carol", "3 croissants"), ("alice", "1 water"), ("dave", "1 coffee"),
    ("bob", "1 scone"), ("erin", "2 teas"), ("alice", "the bill"), ("carol", "1 coffee"), ("dave", "the bill"),
]  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as directory:
        started = time.monotonic()
        node = subprocess.Popen(
            [*PENSTOCK, "serve", "--data-dir", directory, "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warning"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            bootstrap = address_of(node)
            say(f"A node is ready after {time.monotonic() - started:.2f} s, at {bootstrap}.")
            play(bootstrap)
            if "--without-pipeline" not in sys.argv[1:]:
                subprocess.run([sys.executable, str(Path(__file__).with_name("demo_pipeline.py")), bootstrap], check=True)
        finally:
            node.terminate()
            code = node.wait(timeout=30)
        say(f"The node stopped cleanly (exit code {code}). Nothing is left behind.")


PENSTOCK = [sys.executable, "-m", "penstock"]


def address_of(node: subprocess.Popen[str]) -> str:
    assert node.stdout is not None
    ready = node.stdout.readline()
    if not ready:
        sys.exit("the node did not start; its reason stands above")
    return dict(pair.split("=", 1) for pair in ready.split()[2:])["kafka"]


def play(bootstrap: str) -> None:
    say("penstock topics create orders --partitions 3")
    penstock(bootstrap, "topics", "create", "orders", "--partitions", "3")

    say(f"penstock produce orders --key-separator :   ({len(ORDERS)} lines)")
    lines = "".join(f"{who}:{what}\n" for who, what in ORDERS)
    written = penstock(bootstrap, "produce", "orders", "--key-separator", ":", "--json", given=lines)
    for (who, what), place in zip(ORDERS, map(json.loads, written.splitlines()), strict=True):
        print(f"    {who:6} {what:13} → partition {place['partition']}, offset {place['offset']}")

    say("penstock consume orders")
    read = [json.loads(line) for line in penstock(bootstrap, "consume", "orders", "--json").splitlines()]
    by_partition = defaultdict(list)
    for record in read:
        by_partition[record["partition"]].append(f"{record['key']}: {record['value']}")
    for partition, records in sorted(by_partition.items()):
        print(f"    partition {partition}   {'  ·  '.join(records)}")

    came_back = sorted((record["key"], record["value"]) for record in read)
    if came_back != sorted(ORDERS):
        sys.exit("what was read is not what was written")
    say(f"All {len(read)} came back. A key always lands in the same partition, so each guest's orders stay in order.")


def penstock(bootstrap: str, *arguments: str, given: str = "") -> str:
    done = subprocess.run([*PENSTOCK, *arguments, "--bootstrap", bootstrap], input=given, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
