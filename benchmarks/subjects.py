"""Who is measured: a running broker together with the topic settings under which it is measured.

One Penstock process, or one Kafka process, serves all of its flush modes, since they are settings of a topic: so the modes can take
turns, and a JVM stays warm.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.topics import Admin
from benchmarks.processes import Broker, Command, free_port

ROOT = Path(__file__).parent.parent

FLUSH_ACK = {"flush": "ack"}
FLUSH_INTERVAL = {"flush": "interval"}
FLUSH_OS = {"flush": "os"}


class LoadFailed(Exception):
    """The generator gave up; its last words."""


@dataclass(frozen=True, slots=True)
class Subject:
    name: str
    broker: Broker
    topic_configs: Mapping[str, str] = field(default_factory=dict)

    def admin(self) -> Admin:
        return Admin("127.0.0.1", self.broker.port)

    def load(self, kind: str, topic: str, *, warm_up_s: float, seconds: float, **options: int) -> dict[str, float]:
        """Runs the generator as a process of its own."""
        flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
        flags += ["--port", str(self.broker.port), "--broker-pid", str(self.broker.pid)]
        flags += ["--warm-up", str(warm_up_s), "--seconds", str(seconds)]
        return run_generator(f"{self.name}, {kind} {options}", "benchmarks.load", [kind, "--topic", topic, *flags])


def run_generator(title: str, module: str, arguments: Sequence[str]) -> dict[str, float]:
    """What the generator answers. Its title is for when it gives up."""
    ended = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise LoadFailed(f"{title}: {ended.stderr.strip().splitlines()[-1:]}")
    answer: dict[str, float] = json.loads(ended.stdout)
    return answer


def penstock(data_dir: Path) -> Command:
    port, http_port = free_port(), free_port()
    addresses = ["--kafka", f"127.0.0.1:{port}", "--http", f"127.0.0.1:{http_port}"]
    return Command("Penstock", [sys.executable, "-m", "penstock", "serve", "--data-dir", str(data_dir), *addresses], port, data_dir)


def bare_loop(data_dir: Path, *, flushes: bool) -> Command:
    port = free_port()
    flags = ["--port", str(port), "--data-dir", str(data_dir), *(["--flush"] if flushes else [])]
    return Command("bare loop", [sys.executable, "-m", "benchmarks.bare_loop", *flags], port, data_dir)
