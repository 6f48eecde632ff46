"""kcat, the command-line client over librdkafka: Debian's package, with the older librdkafka 2.0 that many systems still have.

kcat makes no topics by itself: producing to a name that is not there makes one. It has no other admin commands.
"""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from conformance import workshop
from conformance.account import CODECS
from conformance.claims import claim, outcome, until
from conformance.players import Say

RUN_SECONDS_MAX = 60.0
LINES = [f"{number:05d} {'penstock ' * 20}" for number in range(300)]


class Kcat:
    name = "kcat"
    features: Sequence[str] = (
        *CODECS,
        "keys, headers, times",
        "idempotent producer",
        "group of two",
        "static member",
        "resume from commit",
        "create and describe topic",
        "offsets by time",
        "a proper no",
    )

    def obtain(self) -> str:
        tree = workshop.debian("kcat", "kcat", "librdkafka1", "libyajl2")
        self._program = str(tree / "usr" / "bin" / "kcat")
        libraries = ":".join(str(path.parent) for path in sorted(Path(tree, "usr", "lib").glob("*/librdkafka.so.1")))
        self._environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
        told = workshop.run([self._program, "-V"], cwd=tree, environment=self._environment)
        kcat, librdkafka = re.search(r"Version (\S+)", told), re.search(r"librdkafka (\S+)", told)
        claim(kcat is not None and librdkafka is not None, f"kcat says its version: {told}")
        assert kcat and librdkafka
        return f"{kcat[1]} with librdkafka {librdkafka[1]}"

    def play(self, bootstrap: str, prefix: str) -> Iterator[Say]:
        self._bootstrap, self._prefix = bootstrap, prefix
        for feature, codec in CODECS.items():
            yield feature, outcome(partial(self._codec, codec))
        scenarios: dict[str, Callable[[], None]] = {
            "keys, headers, times": self._keys_headers_times,
            "idempotent producer": self._idempotent,
            "group of two": self._group_of_two,
            "static member": self._static_member,
            "resume from commit": self._resume,
            "create and describe topic": self._create_and_describe,
            "offsets by time": self._offsets_by_time,
            "a proper no": self._proper_no,
        }
        for feature, scenario in scenarios.items():
            yield feature, outcome(scenario)

    # Scenarios.

    def _codec(self, codec: str) -> None:
        topic = f"{self._prefix}codec.{codec}"
        self._produce(topic, LINES, "-z", codec)
        claim(self._consume(topic) == LINES, "what came back is what was sent")

    def _keys_headers_times(self) -> None:
        topic = self._prefix + "headers"
        self._run("-P", "-t", topic, "-K:", "-Z", "-H", "a=1", "-H", "b=", told="k:\n")
        (line,) = self._consume(topic, "-f", "%k|%S|%h|%T|%o\n")
        key, size, headers, time_ms, offset = line.split("|")
        claim((key, size, headers, offset) == ("k", "-1", "a=1,b=", "0") and int(time_ms) > 1_700_000_000_000, f"it came back: {line}")

    def _idempotent(self) -> None:
        topic = self._prefix + "idempotent"
        lines = [f"{number:05d}" for number in range(2_000)]
        self._produce(topic, lines, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50", "-X", "acks=all")
        claim(self._consume(topic) == lines, "each once, in order")

    def _group_of_two(self) -> None:
        topic = self._topic_of_four("shared")
        with self._member("pair", topic) as first:
            until("the first member owns all", lambda: first.owns() == 4)
            with self._member("pair", topic) as second:
                until("both own two partitions", lambda: (first.owns(), second.owns()) == (2, 2))
                self._produce(topic, LINES)
                until("both together got all", lambda: len(first.got()) + len(second.got()) >= len(LINES))
                claim(sorted(first.got() + second.got()) == LINES and bool(first.got()) and bool(second.got()), "each once, some for both")
            until("the first took over", lambda: first.owns() == 4)

    def _static_member(self) -> None:
        topic = self._topic_of_four("static")
        for _ in range(2):
            with self._member("static", topic, "-X", "group.instance.id=one") as member:
                until("the static member owns all", member.owns_four)

    def _resume(self) -> None:
        topic = self._prefix + "resumed"
        for turn in (0, 1):
            lines = [f"{number:05d}" for number in range(turn * 10, turn * 10 + 10)]
            self._produce(topic, lines)
            with self._member("resuming", topic) as member:
                until("ten more came", partial(member.has, 10))
            claim(member.got() == lines, f"turn {turn} begins where the last ended: {member.got()}")

    def _create_and_describe(self) -> None:
        topic = self._prefix + "described"
        self._produce(topic, ["one"])
        told = json.loads(self._run("-L", "-J", "-t", topic))
        (described,) = told["topics"]
        claim(described["topic"] == topic and len(described["partitions"]) == 1 and len(told["brokers"]) == 1, f"one partition: {told}")
        claim(any(row["topic"] == topic for row in json.loads(self._run("-L", "-J"))["topics"]), "it is listed")

    def _offsets_by_time(self) -> None:
        topic = self._prefix + "timed"
        self._produce(topic, ["0", "1", "2"])
        (when,) = self._consume(topic, "-o", "-1", "-f", "%T\n")
        told = self._run("-Q", "-t", f"{topic}:0:{int(when) + 60_000}") + self._run("-Q", "-t", f"{topic}:0:0")
        claim(re.findall(r"offset (-?\d+)", told) == ["-1", "0"], f"none after, the first of all: {told}")
        claim(self._consume(topic, "-o", f"s@{when}")[-1:] == ["2"], "reading starts at a time")

    def _proper_no(self) -> None:
        wrong = self._ended("-P", "-t", self._prefix + "a name", told="x\n")
        claim(wrong.returncode != 0 and "nvalid topic" in wrong.stderr, f"an impossible name is refused: {wrong.stderr}")

    # The program.

    def _topic_of_four(self, name: str) -> str:
        """kcat cannot ask for partitions; the node's own command can."""
        command = [*workshop.PENSTOCK, "topics", "create", self._prefix + name, "--partitions", "4", "--bootstrap", self._bootstrap]
        workshop.run(command, cwd=workshop.ROOT)
        return self._prefix + name

    def _produce(self, topic: str, lines: list[str], *options: str) -> None:
        self._run("-P", "-t", topic, *options, told="".join(line + "\n" for line in lines))

    def _consume(self, topic: str, *options: str) -> list[str]:
        return self._run("-C", "-t", topic, "-e", "-q", *options).splitlines()

    def _run(self, *arguments: str, told: str = "") -> str:
        ended = self._ended(*arguments, told=told)
        claim(ended.returncode == 0, f"kcat {' '.join(arguments)} ends well: {ended.stderr}")
        return ended.stdout

    def _ended(self, *arguments: str, told: str) -> "subprocess.CompletedProcess[str]":
        command = [self._program, "-b", self._bootstrap, *arguments]
        return subprocess.run(
            command, env=self._environment, input=told, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
        )

    def _member(self, group: str, topic: str, *options: str) -> "Member":
        quick = ["-X", "session.timeout.ms=10000", "-X", "heartbeat.interval.ms=500", "-X", "auto.offset.reset=earliest"]
        command = [self._program, "-b", self._bootstrap, "-u", *quick, *options, "-G", self._prefix + group, topic]
        return Member(command, self._environment)


class Member:
    """A kcat in a group, until the block ends; then it commits and leaves."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment

    def __enter__(self) -> "Member":
        workshop.SCRATCH.mkdir(parents=True, exist_ok=True)
        self._said, self._read = (workshop.SCRATCH / f"kcat-{id(self)}.{stream}" for stream in ("err", "out"))
        with self._said.open("w") as errors, self._read.open("w") as records:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=records, stderr=errors)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def owns_four(self) -> bool:
        return self.owns() == 4

    def owns(self) -> int:
        """How many partitions it was given when it last was told."""
        told = [line for line in self._said.read_text().splitlines() if "assigned: " in line or "revoked: " in line]
        return len(re.findall(r"\[\d+\]", told[-1].partition("assigned: ")[2])) if told else 0

    def has(self, count: int) -> bool:
        return len(self.got()) >= count

    def got(self) -> list[str]:
        return self._read.read_text().splitlines()
