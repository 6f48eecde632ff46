"""What a player is, and the players that are programs of ours over a foreign client library.

Such a program gets the node's address and a prefix, and prints a line for each feature: its name, a tab, and "ok" or what went wrong.
"""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from conformance import workshop
from conformance.account import FEATURES

PLAY_SECONDS_MAX = 900.0

# Played by franz-go, which has all of it. Of the others the test suite plays confluent-kafka, kafka-python, aiokafka and Java.
NEWEST = ("new group protocol", "transactions", "fenced producer", "exactly once", "list and describe transactions")
OURS = "node stays clean"  # The feature that is judged from outside.

Say = tuple[str, str]  # A feature, and "ok" or what went wrong.


class Player(Protocol):
    name: str
    features: Sequence[str]  # Those that the tool has; a player that says nothing of one has failed it.

    def obtain(self) -> str:
        """Fetches the tool and returns its version. Raises NotToBeHad."""

    def play(self, bootstrap: str, prefix: str) -> Iterator[Say]: ...


class Program:
    def __init__(self, name: str, obtain: Callable[[], tuple[Sequence[str], str]], lacks: tuple[str, ...] = ()) -> None:
        self.name = name
        self.features: Sequence[str] = [feature for feature in FEATURES if feature not in (*lacks, "load tools", OURS)]
        self._obtain = obtain
        self._command: Sequence[str] = ()

    def obtain(self) -> str:
        self._command, version = self._obtain()
        return version

    def play(self, bootstrap: str, prefix: str) -> Iterator[Say]:
        command = [*self._command, bootstrap, prefix]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS_MAX, check=False)
        for line in ended.stdout.splitlines():
            feature, tab, said = line.partition("\t")
            if tab:
                yield feature, said
        if ended.returncode != 0:
            print(ended.stderr)


def franz_go() -> Program:
    return Program("franz-go", lambda: ([str(workshop.go("franz_go"))], _go_version("franz_go", "github.com/twmb/franz-go")))


def sarama() -> Program:
    return Program("sarama", lambda: ([str(workshop.go("sarama"))], _go_version("sarama", "github.com/IBM/sarama")), lacks=NEWEST)


def kafkajs() -> Program:
    def obtain() -> tuple[list[str], str]:
        directory = workshop.npm("kafkajs")
        version = workshop.run(["node", "-p", "require('kafkajs/package.json').version"], cwd=directory).strip()
        return ["node", str(directory / "play.js")], f"{version} on Node.js {workshop.run(['node', '--version'], cwd=directory).strip()}"

    return Program("KafkaJS", obtain, lacks=("static member", "log directories", *NEWEST))


def kafka_python() -> Program:
    def obtain() -> tuple[list[str], str]:
        python = str(workshop.pip("kafka_python", "kafka-python==2.2.*", "crc32c", "lz4", "python-snappy", "zstandard"))
        version = workshop.run([python, "-c", "import kafka; print(kafka.__version__)"], cwd=workshop.CACHE).strip()
        return [python, str(workshop.PROGRAMS / "kafka_python" / "play.py")], version

    return Program("kafka-python", obtain, lacks=("static member", "log directories", *NEWEST))


def _go_version(name: str, module: str) -> str:
    told = workshop.run(["go", "version", "-m", "play"], cwd=workshop.CACHE / name).split()
    return told[told.index(module) + 1]
