"""Where settings come from, and what is said when one cannot be used."""

from pathlib import Path

import pytest

from penstock.server.complaints import ConfigurationWrong
from penstock.server.configuration import Configuration, configure, known_names, variable_of


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def complaint(**given: object) -> ConfigurationWrong:
    with pytest.raises(ConfigurationWrong) as caught:
        configure(given.get("flags", {}), given.get("environment", {}), given.get("file"))  # type: ignore[arg-type]
    return caught.value


def test_without_any_source_the_defaults_hold():
    defaults = configure({}, {})
    assert (str(defaults.kafka), str(defaults.http)) == ("127.0.0.1:9092", "127.0.0.1:8080")
    assert defaults.node.num_partitions == 1


def test_a_flag_beats_a_variable_which_beats_the_file(tmp_path: Path):
    file = write(tmp_path / "node.toml", '"num.partitions" = 2\n"partitions.max" = 20\n"node.id" = 7\nkafka = "127.0.0.1:1"')
    environment = {"PENSTOCK_NUM_PARTITIONS": "3", "PENSTOCK_PARTITIONS_MAX": "30", "PENSTOCK_KAFKA": "127.0.0.1:2"}
    both = configure({"num.partitions": "4", "kafka": "127.0.0.1:3"}, environment, file)
    assert (both.node.num_partitions, both.node.partitions_max, both.node.node_id) == (4, 30, 7)
    assert both.kafka.port == 3


def test_a_variable_may_name_the_file(tmp_path: Path):
    file = write(tmp_path / "node.toml", '"num.partitions" = 5')
    assert configure({}, {"PENSTOCK_CONFIG": str(file)}).node.num_partitions == 5


TOPIC_TABLES = ['[topic]\n"retention.ms" = 5\n"flush.ms" = 1\nflush = "os"', 'topic.retention.ms = 5\ntopic.flush = "os"']


@pytest.mark.parametrize("text", TOPIC_TABLES)
def test_a_topic_table_sets_what_topics_inherit(tmp_path: Path, text: str):
    topic = configure({}, {}, write(tmp_path / "node.toml", text)).node.default_topic_config()
    assert (topic.retention_ms, topic.flush) == (5, "os")


def test_what_topics_inherit_can_come_from_flags_and_variables():
    topic = configure({"topic.flush": "os"}, {"PENSTOCK_TOPIC_SEGMENT_BYTES": "4096"}).node.default_topic_config()
    assert (topic.flush, topic.segment_bytes) == ("os", 4096)


def test_toml_truths_and_numbers_need_no_quotes(tmp_path: Path):
    file = write(tmp_path / "node.toml", '"auto.create.topics.enable" = false')
    assert configure({}, {}, file).node.auto_create_topics_enable is False


def test_an_unknown_setting_is_refused_with_the_nearest_one(tmp_path: Path):
    assert complaint(flags={"num.partition": "3"}).next_step == "did you mean num.partitions?"
    assert complaint(environment={"PENSTOCK_NUM_PARTITONS": "3"}).next_step == "did you mean PENSTOCK_NUM_PARTITIONS?"
    in_file = complaint(file=write(tmp_path / "node.toml", "[topic]\nretention.m = 5"))
    assert "topic.retention.m" in in_file.what
    assert in_file.next_step == "did you mean topic.retention.ms?"


def test_variables_of_others_are_left_alone():
    """Kubernetes adds these for a Service called penstock; the client commands have theirs."""
    environment = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.1", "PENSTOCK_PORT": "tcp://10.0.0.1:9092", "PENSTOCK_PORT_9092_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_KAFKA_SERVICE_PORT_HTTP": "80", "PENSTOCK_BOOTSTRAP": "elsewhere:9092", "PATH": "/bin",
    }  # fmt: skip
    assert configure({}, environment).kafka.port == 9092


def test_a_bad_value_names_the_place_where_it_was_written(tmp_path: Path):
    assert "(from PENSTOCK_NUM_PARTITIONS)" in complaint(environment={"PENSTOCK_NUM_PARTITIONS": "0"}).what
    assert "(from --set topic.flush)" in complaint(flags={"topic.flush": "never"}).what
    assert "(from --kafka)" in complaint(flags={"kafka": "9092"}).what
    assert "must be a text" in complaint(file=write(tmp_path / "node.toml", "kafka = [1]")).what


def test_a_file_that_is_missing_or_is_not_toml_is_told_apart(tmp_path: Path):
    assert "cannot be read" in complaint(file=tmp_path / "nowhere.toml").what
    assert "is not TOML" in complaint(file=write(tmp_path / "node.toml", "kafka =")).what


@pytest.mark.parametrize("kafka", ["0.0.0.0:9092", "[::]:9092", ":9092", "*:9092"])
def test_listening_everywhere_without_an_advertised_address_is_refused_with_the_reason(kafka: str):
    refused = complaint(flags={"kafka": kafka})
    assert "clients cannot be told where to connect" in refused.what
    assert "--advertise HOST:9092" in refused.next_step


def test_listening_everywhere_is_fine_once_clients_can_be_told_where():
    told = configure({"kafka": "0.0.0.0:9092", "advertise": "broker.example:19092"}, {})
    assert (told.node.advertised_host, told.node.advertised_port) == ("broker.example", 19092)


def test_every_address_is_no_address_to_advertise():
    assert "cannot connect to 0.0.0.0" in complaint(flags={"kafka": "0.0.0.0:9092", "advertise": "0.0.0.0:9092"}).what


def test_an_advertised_host_of_a_stronger_source_is_not_mixed_with_a_weaker_port():
    mixed = configure({"advertise": "flag.example:1"}, {"PENSTOCK_ADVERTISED_HOST": "variable.example", "PENSTOCK_ADVERTISED_PORT": "2"})
    assert (mixed.node.advertised_host, mixed.node.advertised_port) == ("flag.example", 1)


def test_http_can_be_off():
    assert configure({"http": "off"}, {}).http is None


def test_ipv6_hosts_stand_in_brackets():
    told: Configuration = configure({"kafka": "[::1]:9092"}, {})
    assert (told.kafka.host, str(told.kafka)) == ("::1", "[::1]:9092")
    assert "brackets" in complaint(flags={"kafka": "::1:9092"}).what


def test_no_two_settings_share_a_variable():
    variables = [variable_of(name) for name in known_names()]
    assert len(set(variables)) == len(variables)
