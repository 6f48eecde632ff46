"""Where a node's settings come from: flags, then `PENSTOCK_…` variables, then a TOML file, then defaults; the first that speaks wins.

One name, three spellings: the file's `num.partitions` is the variable PENSTOCK_NUM_PARTITIONS and the flag `--set num.partitions=3`.
What a topic inherits is named with `topic.` in front (in the file: a `[topic]` table). A name that nobody knows is refused with the
nearest one that somebody does: a misspelt setting that is silently ignored is how data gets lost.
Not here: what the settings mean, their defaults and bounds (settings/), which this asks.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from penstock.server.addresses import is_wildcard, parse_address
from penstock.server.cluster_configuration import SECRET_VARIABLE, ClusterConfiguration, read_secret, stand_alone, stand_in_cluster
from penstock.server.complaints import ConfigurationWrong
from penstock.server.queue_keys import read_keys
from penstock.settings import NODE_SETTINGS, TOPIC_PREFIX, TOPIC_SETTINGS, NodeSettings, node_settings
from penstock.vocabulary import Address

VARIABLE_PREFIX = "PENSTOCK_"

# Where the process lives, as opposed to how the node behaves: name, default, and what it is for.
PLACES: dict[str, tuple[str, str]] = {
    "data.dir": ("penstock-data", "The directory that holds everything. Made if it is not there."),
    "kafka": ("127.0.0.1:9092", "Where Kafka clients connect. Port 0 takes a free one."),
    "http": ("127.0.0.1:8080", "Where queues, /health, /ready and /metrics are served; `off` for nowhere."),
    "peers": ("", "Where the other nodes of a cluster connect. Left out: this node's own entry among the voters."),
    "advertise": ("", "HOST:PORT that clients are told to connect to: short for advertised.host and advertised.port."),
    "advertise.peers": (
        "", "HOST:PORT that the other nodes are told to connect to. Left out: this node's entry among the voters, or where it listens.",
    ),
    "cluster.secret.file": (
        "",
        "A file with the secret by which the nodes of a cluster trust each other; nobody else may read it. "
        "Or the variable PENSTOCK_CLUSTER_SECRET holds the secret itself.",
    ),
    "sqs.keys.file": (
        "",
        "A file with the access keys that the queue door takes, one a line: the id, a space, the secret; nobody else may read it. "
        "Left out: it takes every request, signed or not.",
    ),
    "log.level": ("info", "How much is told on standard error: debug, info, warning or error."),
    "loop": ("auto", "The event loop: uvloop, asyncio, or auto (uvloop where it is installed)."),
}
LOG_LEVELS = ("debug", "info", "warning", "error")
LOOPS = ("auto", "uvloop", "asyncio")

# Variables that are no settings: the secret, those of the client commands and the tests, and what Kubernetes adds for a Service penstock.
FOREIGN_VARIABLES = frozenset({
    SECRET_VARIABLE, "PENSTOCK_BOOTSTRAP", "PENSTOCK_CONNECT_TIMEOUT", "PENSTOCK_URL", "PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY",
    "PENSTOCK_CONFIG", "PENSTOCK_REQUIRE", "PENSTOCK_SUITE_ACCOUNT", "PENSTOCK_TIER",
})  # fmt: skip
KUBERNETES = re.compile(r"PENSTOCK_(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where, so that a complaint can name the place."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Configuration:
    data_dir: Path
    kafka: Address | None  # None where the node is no broker.
    http: Address | None
    log_level: str
    loop: str
    node: NodeSettings
    cluster: ClusterConfiguration | None = None  # None for a node alone.
    queue_keys: Mapping[str, str] = field(default_factory=dict, repr=False)


def configure(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None = None) -> Configuration:
    """All sources together. `flags` go by setting name; `file` falls back to PENSTOCK_CONFIG."""
    if file is None and environment.get("PENSTOCK_CONFIG"):
        file = Path(environment["PENSTOCK_CONFIG"])
    given: dict[str, Given] = {}
    if file is not None:
        given |= _spell_out_advertise(read_file(file))
    given |= _spell_out_advertise(read_environment(environment))
    given |= _spell_out_advertise(read_flags(flags))
    return _configuration(given, environment)


def known_names() -> list[str]:
    return [*PLACES, *NODE_SETTINGS, *(TOPIC_PREFIX + name for name in TOPIC_SETTINGS)]


def variable_of(name: str) -> str:
    return VARIABLE_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def read_flags(flags: Mapping[str, str]) -> dict[str, Given]:
    _refuse_unknown(flags, known_names(), "setting")
    return {name: Given(text, f"--set {name}" if name not in PLACES else f"--{name.replace('.', '-')}") for name, text in flags.items()}


def read_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    names = {variable_of(name): name for name in known_names()}
    ours = sorted(variable for variable in environment if variable.startswith(VARIABLE_PREFIX) and variable not in FOREIGN_VARIABLES)
    spoken = [variable for variable in ours if variable in names or not KUBERNETES.fullmatch(variable)]
    _refuse_unknown(spoken, list(names), "variable")
    return {names[variable]: Given(environment[variable], variable) for variable in spoken}


def read_file(path: Path) -> dict[str, Given]:
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigurationWrong(f"the configuration file {path} cannot be read: {failure.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        hint = 'put names in quotes where one begins like another: "flush" beside "flush.ms"'
        raise ConfigurationWrong(f"the configuration file {path} is not TOML: {wrong}", hint) from None
    flat = {name: Given(text, str(path)) for name, text in _flatten(tree, path)}
    _refuse_unknown(flat, known_names(), f"setting in {path}")
    return flat


def _flatten(tree: Mapping[str, object], path: Path, prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in tree.items():
        name = prefix + key
        match value:
            case dict():
                yield from _flatten(value, path, name + ".")
            case bool():
                yield name, "true" if value else "false"
            case str() | int() | float():
                yield name, str(value)
            case _:
                raise ConfigurationWrong(f"{name} in {path} must be a text, a number, true or false")


def _refuse_unknown(names: Iterable[str], known: list[str], kind: str) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.6)
            raise ConfigurationWrong(
                f"there is no {kind} {name}", f"did you mean {near[0]}?" if near else "docs/reference/settings.md lists them all"
            )


def _spell_out_advertise(given: dict[str, Given]) -> dict[str, Given]:
    """Per source, so that a stronger source's host is never paired with a weaker one's port."""
    if not given.get("advertise", Given("", "")).text:
        return given
    advertised, source = _address("advertise", given), given["advertise"].source
    return {**given, "advertised.host": Given(advertised.host, source), "advertised.port": Given(str(advertised.port), source)}


def _configuration(given: Mapping[str, Given], environment: Mapping[str, str]) -> Configuration:
    node = _node(given)
    kafka = _address("kafka", given) if "broker" in node.process_roles else None
    http = None if _place("http", given) == "off" else _address("http", given)
    cluster = _cluster(given, environment, node)
    if kafka is not None:
        _refuse_unreachable(kafka, node)
        node = node if cluster is None else _with_address(node, kafka)
    return Configuration(
        data_dir=Path(_place("data.dir", given)),
        kafka=kafka,
        http=http,
        log_level=_word("log.level", LOG_LEVELS, given),
        loop=_word("loop", LOOPS, given),
        node=node,
        cluster=cluster,
        queue_keys=read_keys(_place("sqs.keys.file", given)),
    )


def _with_address(node: NodeSettings, kafka: Address) -> NodeSettings:
    """The other nodes are told where clients find this one before it listens for clients, so the port cannot be left to chance."""
    if not kafka.port and not node.advertised_port:
        raise ConfigurationWrong(f"--kafka {kafka} takes any free port, and the other nodes must know which", "choose a port")
    return replace(node, advertised_host=node.advertised_host or kafka.host, advertised_port=node.advertised_port or kafka.port)


def _cluster(given: Mapping[str, Given], environment: Mapping[str, str], node: NodeSettings) -> ClusterConfiguration | None:
    peers = _address("peers", given) if _place("peers", given) else None
    if not node.quorum_voters.strip():
        stand_alone(node, peers)
        return None
    advertised = _address("advertise.peers", given) if _place("advertise.peers", given) else None
    secret = read_secret(environment, _place("cluster.secret.file", given))
    return stand_in_cluster(node, peers=peers, advertised=advertised, secret=secret)


def _node(given: Mapping[str, Given]) -> NodeSettings:
    values = {name: each for name, each in given.items() if name in NODE_SETTINGS}
    topic = {name.removeprefix(TOPIC_PREFIX): each for name, each in given.items() if name.startswith(TOPIC_PREFIX)}
    _check_each(values, topic)
    return node_settings({name: each.text for name, each in values.items()}, {name: each.text for name, each in topic.items()})


def _check_each(values: Mapping[str, Given], topic: Mapping[str, Given]) -> None:
    """One by one, so that the complaint can say where the value was written."""
    for table, settings in ((values, NODE_SETTINGS), (topic, TOPIC_SETTINGS)):
        for name, each in table.items():
            try:
                settings[name].parse(each.text)
            except ValueError as wrong:
                raise ConfigurationWrong(f"{wrong} (from {each.source})") from None


def _refuse_unreachable(kafka: Address, node: NodeSettings) -> None:
    if is_wildcard(kafka.host) and not node.advertised_host:
        raise ConfigurationWrong(
            f"--kafka {kafka} listens on every interface, so clients cannot be told where to connect",
            f"name the address that clients can reach: --advertise HOST:{kafka.port or 'PORT'}",
        )
    if is_wildcard(node.advertised_host):
        raise ConfigurationWrong(
            f"clients cannot connect to {node.advertised_host}", "advertise a host name or address that they can reach"
        )


def _place(name: str, given: Mapping[str, Given]) -> str:
    return given[name].text if name in given else PLACES[name][0]


def _word(name: str, choices: tuple[str, ...], given: Mapping[str, Given]) -> str:
    word = _place(name, given)
    if word not in choices:
        raise ConfigurationWrong(f"{name} must be one of {', '.join(choices)}, not {word!r} (from {given[name].source})")
    return word


def _address(name: str, given: Mapping[str, Given]) -> Address:
    try:
        return parse_address(_place(name, given))
    except ValueError as wrong:
        raise ConfigurationWrong(f"{name}: {wrong} (from {given[name].source})") from None
