"""Apache Kafka's own command-line tools, as operators type them: the classes behind kafka-topics.sh and its like, from Maven's jars.

Every call starts a Java machine, so a scenario asks for no more than it must. Members of groups are kafka-verifiable-consumer.sh, which
prints what it was given, read and committed as lines of JSON.
"""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from conformance import workshop
from conformance.account import CODECS
from conformance.claims import claim, outcome, until
from conformance.players import Say

RUN_SECONDS_MAX = 120.0
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
LINES = [f"{number:05d} {'penstock ' * 20}".strip() for number in range(300)]

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "producer-perf": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf": "org.apache.kafka.tools.ConsumerPerformance",
}
TOOLS_BEFORE_4 = TOOLS | {"producer": "kafka.tools.ConsoleProducer", "api-versions": "kafka.admin.BrokerApiVersionsCommand"}


class JavaTools:
    features: Sequence[str] = (
        *CODECS,
        "keys, headers, times",
        "idempotent producer",
        "group of two",
        "static member",
        "resume from commit",
        "create and describe topic",
        "change settings",
        "add partitions",
        "delete records",
        "offsets by time",
        "list and describe groups",
        "reset group offsets",
        "delete group",
        "log directories",
        "delete topic",
        "a proper no",
        "load tools",
    )

    def __init__(self, version: str) -> None:
        self.name = f"Kafka's tools {version.partition('.')[0]}"
        self._version = version
        self._tools = TOOLS if version >= "4" else TOOLS_BEFORE_4

    def obtain(self) -> str:
        artifacts = [f"org.apache.kafka:{artifact}:{self._version}" for artifact in ("kafka-tools", "kafka_2.13")]
        self._class_path = workshop.maven(f"java-{self._version}", *artifacts)
        return self._version

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
            "change settings": self._change_settings,
            "add partitions": self._add_partitions,
            "delete records": self._delete_records,
            "offsets by time": self._offsets_by_time,
            "list and describe groups": self._list_and_describe_groups,
            "reset group offsets": self._reset_group_offsets,
            "delete group": self._delete_group,
            "log directories": self._log_directories,
            "delete topic": self._delete_topic,
            "a proper no": self._proper_no,
            "load tools": self._load_tools,
        }
        for feature, scenario in scenarios.items():
            yield feature, outcome(scenario)

    # Records.

    def _codec(self, codec: str) -> None:
        topic = f"{self._prefix}codec.{codec}"
        self._run("producer", "--topic", topic, "--compression-codec", codec, told=LINES)
        claim(self._read(topic, len(LINES)) == LINES, "what came back is what was sent")

    def _keys_headers_times(self) -> None:
        topic = self._prefix + "headers"
        parse = ["--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL"]
        self._run("producer", "--topic", topic, *parse, told=["a:1,b:2\tk\tNULL"])
        shown = [word for what in ("timestamp", "key", "headers", "offset") for word in ("--property", f"print.{what}=true")]
        line = self._read(topic, 1, *shown)[-1]  # Newer tools first say that there is a newer name for --property.
        claim(re.fullmatch(r"CreateTime:\d{13}\tOffset:0\ta:1,b:2\tk\tnull", line) is not None, f"it came back: {line!r}")

    def _idempotent(self) -> None:
        topic = self._prefix + "idempotent"
        lines = [f"{number:05d}" for number in range(2_000)]
        self._run("producer", "--topic", topic, "--batch-size", "512", "--producer-property", "enable.idempotence=true", told=lines)
        claim(self._read(topic, 2_000) == lines, "each once, in order")
        told = self._run("transactions", "describe-producers", "--topic", topic, "--partition", "0")
        claim(re.search(r"^\d+\s+0\s+-?\d+\s+1999\s", told, re.MULTILINE) is not None, f"its producer is known: {told}")

    # Groups.

    def _group_of_two(self) -> None:
        topic = self._made("shared", "--partitions", "4")
        with self._member("pair", topic) as first:
            until("the first member owns all", lambda: first.owns() == 4)
            with self._member("pair", topic) as second:
                until("both own two partitions", lambda: (first.owns(), second.owns()) == (2, 2))
                self._run("producer", "--topic", topic, "--batch-size", "1", told=LINES)  # Keyless records go round, a batch each.
                until("both together got all", lambda: first.read() + second.read() == len(LINES) and first.has_committed())
            until("the first took over", lambda: first.owns() == 4)
        claim(_end_and_lag(self._described("pair")) == (300, 0), f"all was committed: {self._described('pair')}")

    def _static_member(self) -> None:
        topic = self._made("static", "--partitions", "4")
        for _ in range(2):
            with self._member("static", topic, "--group-instance-id", "one") as member:
                until("the static member owns all", member.owns_four)
        told = self._run("groups", "--describe", "--group", self._prefix + "static", "--members")
        claim(len(re.findall(r"one-[0-9a-f-]{36}", told)) == 1, f"one member, who did not leave: {told}")

    def _resume(self) -> None:
        topic = self._made("resumed")
        for turn in (0, 1):
            lines = [f"{number:05d}" for number in range(turn * 10, turn * 10 + 10)]
            self._run("producer", "--topic", topic, told=lines)
            got = self._read(topic, 10, "--group", self._prefix + "resuming")
            claim(got == lines, f"turn {turn} begins where the last ended: {got}")

    def _list_and_describe_groups(self) -> None:
        topic, group = self._made("watched", "--partitions", "2"), self._prefix + "watched"
        with self._member("watched", topic) as member:
            until("the member owns all", lambda: member.owns() == 2)
            listed = self._run("groups", "--list", "--state")
            members = self._run("groups", "--describe", "--group", group, "--members", "--verbose")
            state = self._run("groups", "--describe", "--group", group, "--state")
        claim(re.search(rf"^{re.escape(group)}\s+(Classic\s+)?.*Stable", listed, re.MULTILINE) is not None, f"it is listed: {listed}")
        claim(re.search(r"\s2\s.*(\(0,1\)|:0,1)\s", members) is not None, f"one member has both partitions: {members}")
        claim(re.search(r"range\s+.*Stable\s+1", state) is not None, f"it is stable: {state}")
        if self._tools is TOOLS:  # Groups had no settings before.
            told = self._run("configs", "--describe", "--entity-type", "groups")
            claim(f"configs for group {group} are" in told, f"its settings can be asked for: {told}")

    def _reset_group_offsets(self) -> None:
        group, topic = self._committed("reset")
        told = self._run("groups", "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "-7", "--execute")
        claim(re.search(rf"{re.escape(topic)}\s+0\s+3\b", told) is not None, f"it moves to 3: {told}")
        claim(_end_and_lag(self._described("reset")) == (10, 7), "its lag is 7")
        self._run("groups", "--reset-offsets", "--group", group, "--all-topics", "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
        claim(_end_and_lag(self._described("reset")) == (10, 10), "its lag is 10")
        self._run("groups", "--delete-offsets", "--group", group, "--topic", topic)
        claim(topic not in self._described("reset"), "a deleted offset is gone")

    def _delete_group(self) -> None:
        group, _ = self._committed("deleted")
        self._run("groups", "--delete", "--group", group)
        claim(group not in self._run("groups", "--list").split(), "it is listed no more")

    def _committed(self, name: str) -> tuple[str, str]:
        """A group without members that has read ten records."""
        topic = self._made(name)
        self._run("producer", "--topic", topic, told=[str(number) for number in range(10)])
        self._read(topic, 10, "--group", self._prefix + name)
        return self._prefix + name, topic

    # Topics.

    def _create_and_describe(self) -> None:
        topic = self._made("described", "--partitions", "3", "--config", "retention.ms=604800000")
        told = self._run("topics", "--describe", "--topic", topic)
        claim("PartitionCount: 3\tReplicationFactor: 1\tConfigs: " in told, f"three partitions: {told}")
        claim("retention.ms=604800000" in told, f"with a setting of its own: {told}")
        claim(topic in self._run("topics", "--list").split(), "it is listed")
        claim("Cluster ID: " in self._run("cluster", "cluster-id"), "the cluster has an id")
        claim("ApiVersions(18)" in self._run("api-versions"), "the node tells its versions")
        claim("No partition reassignments" in self._run("reassign", "--list"), "nothing is being moved")

    def _change_settings(self) -> None:
        whose = ["--entity-type", "topics", "--entity-name", self._made("settings")]
        self._run("configs", "--alter", *whose, "--add-config", "retention.ms=3600000,cleanup.policy=[compact,delete]")
        told = self._run("configs", "--describe", *whose)
        claim("retention.ms=3600000" in told and "cleanup.policy=compact,delete" in told, f"it has the new values: {told}")
        self._run("configs", "--alter", *whose, "--delete-config", "retention.ms")
        claim("retention.ms" not in self._run("configs", "--describe", *whose), "it is back to what it was")
        told = self._run("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
        claim("num.partitions=1" in told, f"the node tells its settings: {told}")

    def _add_partitions(self) -> None:
        topic = self._made("widened")
        self._run("topics", "--alter", "--topic", topic, "--partitions", "4")
        claim("PartitionCount: 4" in self._run("topics", "--describe", "--topic", topic), "four partitions")

    def _delete_records(self) -> None:
        topic = self._made("trimmed")
        self._run("producer", "--topic", topic, told=[str(number) for number in range(10)])
        wish = workshop.SCRATCH / f"delete-records-{self._version}.json"
        wish.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
        claim("low_watermark: 4" in self._run("delete-records", "--offset-json-file", str(wish)), "it says the new start")
        claim(self._offset(topic, "earliest") == 4, "the log starts at 4")

    def _offsets_by_time(self) -> None:
        topic = self._made("timed")
        self._run("producer", "--topic", topic, told=["0", "1", "2"])
        between = int(time.time() * 1_000)
        self._run("producer", "--topic", topic, told=["3", "4"])
        told = [self._offset(topic, when) for when in (str(between), "latest", "earliest", "max-timestamp")]
        claim(told[:3] == [3, 5, 0] and told[3] in (3, 4), f"3, 5, 0, and the newest: {told}")

    def _log_directories(self) -> None:
        topic = self._made("sized")
        self._run("producer", "--topic", topic, told=["x"])
        told = self._run("log-dirs", "--describe", "--topic-list", topic)
        (node,) = json.loads(told[told.index("{") :])["brokers"]
        claim(node["logDirs"][0]["partitions"][0]["size"] > 0, f"it has a size: {told}")

    def _delete_topic(self) -> None:
        topic = self._made("gone")
        self._run("topics", "--delete", "--topic", topic)
        claim(topic not in self._run("topics", "--list").split(), "it is listed no more")

    def _proper_no(self) -> None:
        topic = self._made("twice")
        wishes = {
            "already exists": ["--create", "--topic", topic],
            # Older tools look at the value themselves.
            "retention.ms|Invalid value": ["--create", "--topic", self._prefix + "crooked", "--config", "retention.ms=banana"],
            "replica|InvalidReplicationFactor": ["--create", "--topic", self._prefix + "thrice", "--replication-factor", "3"],
            "partition|InvalidPartitions": ["--alter", "--topic", topic, "--partitions", "1"],
        }
        for sign, wish in wishes.items():
            ended = self._ended("topics", *wish)
            said = ended.stdout + ended.stderr
            claim(ended.returncode != 0 and re.search(sign, said) is not None, f"{' '.join(wish)} is refused: {said}")

    def _load_tools(self) -> None:
        topic = self._made("load", "--partitions", "3")
        shape = ["--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
        told = self._run("producer-perf", "--topic", topic, *shape, "--producer-props", f"bootstrap.servers={self._bootstrap}", bare=True)
        claim("20000 records sent" in told, f"all were sent: {told}")
        told = self._run("consumer-perf", "--topic", topic, "--messages", "20000", "--timeout", "60000")
        figures = told.strip().splitlines()[-1].split(", ")
        claim(int(figures[4]) == 20_000, f"all were read: {told}")

    # The programs.

    def _made(self, name: str, *options: str) -> str:
        self._run("topics", "--create", "--topic", self._prefix + name, *options)
        return self._prefix + name

    def _read(self, topic: str, count: int, *options: str) -> list[str]:
        patience = ["--timeout-ms", "30000"]
        return self._run("consumer", "--topic", topic, "--from-beginning", "--max-messages", str(count), *patience, *options).splitlines()

    def _described(self, group: str) -> str:
        return self._run("groups", "--describe", "--group", self._prefix + group)

    def _offset(self, topic: str, when: str) -> int:
        return int(self._run("offsets", "--topic", topic, "--time", when).strip().rpartition(":")[2])

    def _run(self, tool: str, *arguments: str, told: list[str] | None = None, bare: bool = False) -> str:
        ended = self._ended(tool, *arguments, told=told, bare=bare)
        claim(ended.returncode == 0, f"{tool} {' '.join(arguments)} ends well: {ended.stdout} {ended.stderr}")
        return ended.stdout

    def _ended(self, tool: str, *arguments: str, told: list[str] | None = None, bare: bool = False) -> "subprocess.CompletedProcess[str]":
        where = [] if bare else ["--bootstrap-server", self._bootstrap]
        at = int(tool == "cluster")  # Its first word is a command of its own, which wants to know where.
        command = [*JAVA, "-cp", self._class_path, self._tools[tool], *arguments[:at], *where, *arguments[at:]]
        typed = "".join(line + "\n" for line in told or [])
        return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)

    def _member(self, group: str, topic: str, *options: str) -> "Member":
        where = ["--bootstrap-server", self._bootstrap, "--group-id", self._prefix + group, "--topic", topic]
        quick = ["--session-timeout", "10000", "--reset-policy", "earliest"]
        return Member([*JAVA, "-cp", self._class_path, self._tools["verifiable-consumer"], *where, *quick, *options])


class Member:
    """A verifiable consumer, until the block ends; then it leaves its group."""

    def __init__(self, command: list[str]) -> None:
        self._command = command

    def __enter__(self) -> "Member":
        workshop.SCRATCH.mkdir(parents=True, exist_ok=True)
        self._said = workshop.SCRATCH / f"verifiable-{id(self)}.json"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(self._command, stdout=said, stderr=subprocess.DEVNULL)
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
        """How many partitions it has: an eager member gives all of them back before it is given others."""
        given = [event for event in self._events() if event["name"] in ("partitions_assigned", "partitions_revoked")]
        return len(given[-1]["partitions"]) if given and given[-1]["name"] == "partitions_assigned" else 0

    def read(self) -> int:
        return sum(event["count"] for event in self._events() if event["name"] == "records_consumed")

    def has_committed(self) -> bool:
        commits = [event for event in self._events() if event["name"] == "offsets_committed"]
        return bool(commits) and all(event["success"] for event in commits)

    def _events(self) -> list[dict[str, Any]]:
        lines = self._said.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


def _end_and_lag(described: str) -> tuple[int, int]:
    """The sums of the columns LOG-END-OFFSET and LAG."""
    lines = [line.split() for line in described.splitlines() if line.strip()]
    titles = next(line for line in lines if "LAG" in line)
    rows = [line for line in lines if line[0] != "Consumer" and line != titles and len(line) > titles.index("LAG")]
    end, lag = (sum(int(row[titles.index(title)]) for row in rows) for title in ("LOG-END-OFFSET", "LAG"))
    return end, lag
