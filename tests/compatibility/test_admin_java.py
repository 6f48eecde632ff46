"""Apache Kafka's own admin client (the newest version of every admin API) finds in a node what it finds in Apache Kafka."""

import subprocess
from pathlib import Path

import pytest
from system.conftest import Broker
from system.java_clients import class_path

pytestmark = pytest.mark.needs("java")

PROGRAM = Path(__file__).parent / "java" / "AdminCalls.java"
SCENARIOS = [
    "settings of a topic",
    "settings that cannot be",
    "settings of a node",
    "settings of every node",
    "more partitions",
    "deleted records",
    "log directories",
    "producers",
    "reassignments",
    "config resources",
    "many topics described",
    "a position with its epoch",
]


@pytest.fixture(scope="module")
def outcomes(broker: Broker) -> dict[str, str]:
    """One Java process plays all scenarios: starting it costs more than they do."""
    try:
        jars = class_path()
    except LookupError as reason:
        pytest.skip(f"needs Apache Kafka's Java clients: {reason}")
    command = ["java", "-cp", jars, str(PROGRAM), broker.bootstrap, "1"]
    played = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    print(played.stdout, played.stderr)
    return dict(line.split("\t", 1) for line in played.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_java_admin_client_plays(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario, "it never came to this") == "ok"
