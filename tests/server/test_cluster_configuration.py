"""What a node must be told to be one of several, and what is said when it was told too little, too much or the wrong thing."""

from pathlib import Path

import pytest

from penstock.cluster.quorum_addresses import parse_voters, spell_voters
from penstock.server.complaints import ConfigurationWrong
from penstock.server.configuration import Configuration, configure
from penstock.vocabulary import Address

SECRET = "0123456789abcdef0123"
VOTERS = "1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093"
NODE_2 = {"node.id": "2", "cluster.id": "orders", "controller.quorum.voters": VOTERS}


def configured(changes: dict[str, str], secret: str = SECRET) -> Configuration:
    """Node 2 of three, with these changes; an empty value leaves a flag out."""
    flags = {name: text for name, text in (NODE_2 | changes).items() if text}
    return configure(flags, {"PENSTOCK_CLUSTER_SECRET": secret} if secret else {})


def complaint(changes: dict[str, str], secret: str = SECRET) -> str:
    with pytest.raises(ConfigurationWrong) as caught:
        configured(changes, secret)
    return f"{caught.value.what}\n{caught.value.next_step}"


def test_a_voter_listens_where_the_voters_say():
    cluster = configured({}).cluster
    assert cluster is not None
    assert cluster.peers == cluster.advertised == Address("10.0.0.2", 9093)
    assert list(cluster.voters) == [1, 2, 3]
    assert cluster.secret == SECRET.encode()


def test_a_node_without_voters_is_alone():
    alone = configure({}, {"PENSTOCK_CLUSTER_SECRET": SECRET})
    assert alone.cluster is None
    assert alone.kafka == Address("127.0.0.1", 9092)


def test_a_voter_may_listen_everywhere_because_its_entry_says_where_it_is_found():
    cluster = configured({"peers": "0.0.0.0:9093"}).cluster
    assert cluster is not None
    assert (cluster.peers.host, str(cluster.advertised)) == ("0.0.0.0", "10.0.0.2:9093")


def test_a_broker_that_is_no_voter_says_where_it_listens():
    broker = {"node.id": "4", "process.roles": "broker"}
    assert "add --peers HOST:PORT" in complaint(broker)
    assert "--advertise-peers HOST:9093" in complaint(broker | {"peers": "0.0.0.0:9093"})
    for told in ({"peers": "10.0.0.4:9093"}, {"peers": "0.0.0.0:9093", "advertise.peers": "10.0.0.4:9093"}):
        cluster = configured(broker | told).cluster
        assert cluster is not None
        assert str(cluster.advertised) == "10.0.0.4:9093"


def test_a_controller_alone_opens_no_door_for_clients():
    assert configured({"process.roles": "controller"}).kafka is None
    assert configured({"process.roles": "controller", "kafka": "0.0.0.0:9092"}).kafka is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster.id": ""}, "--cluster-id NAME"),
        ({"cluster.id": "two words"}, "cannot be a cluster id"),
        ({"node.id": "4"}, "add 4@HOST:PORT to --voters"),
        ({"process.roles": "broker"}, "has not the role controller"),
        ({"controller.quorum.voters": "2@10.0.0.2:9093", "process.roles": "controller"}, "serves nobody"),
        ({"broker.session.timeout.ms": "500"}, "twice the second"),
        ({"controller.quorum.election.timeout.ms": "200"}, "--set controller.quorum.election.timeout.ms=600"),
        ({"controller.quorum.voters": "", "peers": "10.0.0.2:9093"}, "leave --peers out"),
        ({"controller.quorum.voters": "", "process.roles": "broker"}, "name them with --voters"),
        ({"controller.quorum.voters": "", "process.roles": "controller"}, "name them with --voters"),
        ({"controller.quorum.voters": "", "cluster.join": "true"}, "must know whom to ask"),
    ],
)
def test_what_could_only_wait_for_ever_is_refused_with_what_to_do(changes: dict[str, str], words: str):
    assert words in complaint(changes)


@pytest.mark.parametrize(
    "voters",
    [
        "1", "1@host", "host:9093", "one@host:9093", "1@host:x", "1@:9093", "1@0.0.0.0:9093", "1@host:0", "1@::1:9093",
        "1@a:1,1@b:1", "1@a:1,2@a:1", "1@a:1,",
    ],
)  # fmt: skip
def test_voters_that_cannot_be_read_are_refused(voters: str):
    assert complaint({"controller.quorum.voters": voters}).startswith("--voters: ")


def test_voters_are_written_as_they_are_read():
    text = "1@a.example:9093,2@[::1]:9093"
    assert parse_voters(text) == {1: Address("a.example", 9093), 2: Address("::1", 9093)}
    assert spell_voters(parse_voters("2@[::1]:9093, 1@a.example:9093")) == text
    assert parse_voters(" ") == {}


# The secret


def test_voters_without_a_secret_are_refused():
    assert "openssl rand" in complaint({}, secret="")
    assert "16 at least" in complaint({}, secret="short")


def test_the_secret_may_come_from_a_file_that_nobody_else_can_read(tmp_path: Path):
    file = tmp_path / "cluster.secret"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    cluster = configured({"cluster.secret.file": str(file)}, secret="").cluster
    assert cluster is not None
    assert cluster.secret == SECRET.encode()
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        assert f"chmod 600 {file}" in complaint({"cluster.secret.file": str(file)}, secret="")
    file.chmod(0o600)
    assert "given twice" in complaint({"cluster.secret.file": str(file)})
    assert "cannot be read" in complaint({"cluster.secret.file": str(tmp_path / "nowhere")}, secret="")
    assert "is no file" in complaint({"cluster.secret.file": str(tmp_path)}, secret="")


def test_the_secret_is_no_setting_and_is_not_printed():
    told = configured({})
    assert SECRET not in repr(told)
    assert SECRET not in "".join(told.node.as_texts().values())
    with pytest.raises(ConfigurationWrong):
        configure({"cluster.secret": SECRET}, {})
