"""Apache Kafka's processes in place of ours, so that a test of a cluster can be held against the cluster that it imitates.

What has no meaning there is left out: the secret, joining with a new disk, settings that only we have.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from system.clusters import CONTROLLER, Member
from system.harness import ROOT
from waiting import until

CLUSTER_ID = "cGVuc3RvY2stdGVzdHMtMQ"
OURS_ALONE = ("controller.quorum.heartbeat.interval.ms", "flush", "checkpoint.interval.bytes", "disk.reserve.bytes")
sys.path.insert(0, str(ROOT))


class KafkaMember(Member):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        from benchmarks.kafka import peer

        self._libraries = peer.install(ROOT / ".cache")

    def command(self) -> list[str]:
        file = self.log.with_suffix(".properties")
        if not self.data_directory.exists():
            self.data_directory.mkdir(parents=True)
            file.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
            tool = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config", str(file)]
            subprocess.run(["java", "-cp", f"{self._libraries}/*", *tool], check=True, capture_output=True)
        return ["java", "-Xmx512M", "-cp", f"{self._libraries}/*", "kafka.Kafka", str(file)]

    def wait_until_ready(self) -> Self:
        until(self._is_ready, lambda: f"the broker is ready:\n{self.last_words()}", every_s=0.1)
        return self

    def _is_ready(self) -> bool:
        assert self.is_alive(), f"it ended:\n{self.last_words()}"
        try:
            return not self.is_broker or self.node_id in self.view().brokers
        except (OSError, AssertionError):
            return False

    def log_directory(self, topic: str, topic_id: bytes, partition: int) -> Path:
        return self.data_directory / f"{topic}-{partition}"

    def _properties(self) -> dict[str, object]:
        listeners = [f"PLAINTEXT://{self.bootstrap}"] if self.is_broker else []
        listeners += [f"CONTROLLER://{self.host}:{self.peer_port}"] if CONTROLLER in self.roles else []
        own = {name: value for name, value in self._settings.items() if not name.removeprefix("topic.").startswith(OURS_ALONE)}
        return {
            "process.roles": self.roles,
            "node.id": self.node_id,
            "controller.quorum.voters": self.voters,
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self.data_directory,
            **({"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"} if self.is_broker else {}),
            **own,
        }
