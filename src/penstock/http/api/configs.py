"""The settings of a topic: shown with where each value comes from, and changed while the topic is in use."""

from penstock.broker.config_entries import topic_entries
from penstock.broker.node import Node
from penstock.cluster import records
from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.http.answers import OK, Answer
from penstock.http.api.deciding import VALIDATE_ONLY, decide, topic_called
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import flag, listing, named, shape, text, texts_by_name
from penstock.wire.configs import Operation, Source

_SOURCES = {
    Source.TOPIC: "topic",
    Source.THIS_NODE: "this node",
    Source.EVERY_NODE: "every node",
    Source.STARTED_WITH: "started with",
    Source.DEFAULT: "default",
}

CONFIG = shape(
    {
        "name": text("The setting's name."),
        "value": text("What holds."),
        "source": text("Whose value it is.", enum=list(_SOURCES.values())),
        "kind": text("What values look like.", enum=["boolean", "integer", "number", "word", "text"]),
        "reason": text("What it is for."),
    }
)
CONFIGS = shape({"topic": text("The topic's name."), "configs": listing(named("Config"))})
CHANGES = shape(
    {
        "set": texts_by_name("New values, by name."),
        "unset": listing(text("A setting's name."), "Settings that go back to what topics start from."),
        "validate_only": VALIDATE_ONLY,
    },
    optional=("set", "unset", "validate_only"),
)
CHANGED = shape(
    {
        "topic": text("The topic's name."),
        "overrides": texts_by_name("Settings of its own, after the change."),
        "is_done": flag("False where it was only tried."),
    }
)


async def list_configs(node: Node, request: ApiRequest) -> Answer:
    topic = topic_called(node, request.parts["topic"])
    rows = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": _SOURCES[entry.source],
            "kind": "text" if entry.setting is None else entry.setting.kind,
            "reason": entry.documentation,
        }
        for entry in topic_entries(node, topic.overrides)
    ]
    return Answer(OK, {"topic": topic.name, "configs": rows})


async def change_configs(node: Node, request: ApiRequest) -> Answer:
    topic, is_trial = topic_called(node, request.parts["topic"]), request.body.get("validate_only", False)
    changes = [Change(name, Operation.SET, value) for name, value in request.body.get("set", {}).items()]
    changes += [Change(name, Operation.DELETE) for name in request.body.get("unset", [])]
    configured = await decide(node, ConfigureTopic(topic.name, tuple(changes)), is_trial=is_trial)
    assert isinstance(configured, records.TopicConfigured)
    return Answer(OK, {"topic": topic.name, "overrides": configured.overrides, "is_done": not is_trial})
