"""Consumer groups through Apache Kafka's Java clients: the newest request versions of every group API."""

import subprocess
from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import class_path

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "GroupLife.java"
SCENARIOS = [
    "shares partitions and takes over",
    "cooperative moves only what must move",
    "static restart without rebalance",
    "second holder fences the first",
    "commit, fetch, seek",
    "admin",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    """One Java process plays all scenarios: starting it costs more than they do."""
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs Apache Kafka's Java clients: {reason}")
    played = subprocess.run(["java", "-cp", jars, str(PROGRAM), broker.bootstrap], capture_output=True, text=True, timeout=170, check=False)
    print(played.stdout, played.stderr)
    return dict(line.split("\t", 1) for line in played.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_java_group_members_play(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
