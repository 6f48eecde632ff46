"""The routes over a real node in this very loop: readiness through its life, and metrics as Prometheus reads them."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.http.app import application
from penstock.http.bounds import App, Message
from penstock.http.metrics import render
from penstock.server.env import RealEnv
from penstock.settings import NodeSettings

Story = Callable[[Node, App], Awaitable[None]]


def with_node(directory: Path, story: Story) -> None:
    async def whole() -> None:
        env = RealEnv(str(directory))
        node = Node(env, NodeSettings())
        try:
            await story(node, application(node).pages)
        finally:
            await node.stop()
            env.shut()

    asyncio.run(whole())


async def get(app: App, path: str, answer: list[tuple[int, str]] | None = None) -> tuple[int, str]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    scope["headers"] = [(b"host", b"127.0.0.1")]
    answer = answer if answer is not None else []
    try:
        await app(scope, receive, send)
    finally:
        answer.append((sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()))
    return answer[0]


def test_a_node_is_alive_at_once_and_ready_when_clients_may_come(tmp_path: Path):
    async def story(node: Node, app: App) -> None:
        assert (await get(app, "/health"))[0] == 200
        status, text = await get(app, "/ready")
        assert (status, json.loads(text)["reason"]) == (503, "not started")
        await node.start()
        assert json.loads((await get(app, "/ready"))[1])["reason"] == "not listening"
        await node.listen_kafka("127.0.0.1", 0)
        assert (await get(app, "/ready"))[0] == 200
        node.fail("the metadata log failed: no such luck")
        status, text = await get(app, "/ready")
        assert (status, json.loads(text)["reason"]) == (503, "the metadata log failed: no such luck")

    with_node(tmp_path, story)


def test_a_node_that_refuses_producers_is_alive_and_not_ready(tmp_path: Path):
    async def story(node: Node, app: App) -> None:
        await node.start()
        await node.listen_kafka("127.0.0.1", 0)
        node.settings = replace(node.settings, disk_free_bytes_min=1 << 60)
        node.look_at_disk_room()
        assert (await get(app, "/health"))[0] == 200
        status, text = await get(app, "/ready")
        assert (status, json.loads(text)["reason"]) == (503, "the disk has too little room: produce requests are refused")
        assert (await get(app, "/api/v1/nodes"))[0] == 200, "everything else is served"
        assert "penstock_disk_is_short 1" in (await get(app, "/metrics"))[1]
        node.settings = replace(node.settings, disk_free_bytes_min=0)
        node.look_at_disk_room()
        assert (await get(app, "/ready"))[0] == 200

    with_node(tmp_path, story)


def test_a_handler_that_fails_answers_without_telling_its_secrets(tmp_path: Path):
    def broken_vitals() -> list[Sample]:
        raise OSError("the password is swordfish")

    async def story(node: Node, app: App) -> None:
        answer: list[tuple[int, str]] = []
        with pytest.raises(OSError, match="swordfish"):  # For the server's log.
            await get(application(node, broken_vitals).pages, "/metrics", answer=answer)
        ((status, text),) = answer
        assert (status, json.loads(text)["error"]) == (500, "internal_error")
        assert "swordfish" not in text

    with_node(tmp_path, story)


def test_samples_of_one_name_stand_together_under_one_heading():
    samples = [
        Sample("b_total", "counter", "Second.", (("api", "x"),), 1),
        Sample("a", "gauge", "First.", (), 0.5),
        Sample("b_total", "counter", "Second.", (("api", "y"),), 2),
    ]
    assert render(samples) == (
        "# HELP a First.\n# TYPE a gauge\na 0.5\n"
        '# HELP b_total Second.\n# TYPE b_total counter\nb_total{api="x"} 1\nb_total{api="y"} 2\n'
    )


def test_large_counters_keep_their_last_digits_and_labels_are_escaped():
    text = render([Sample("n", "counter", "Back\\slash\nline.", (("path", 'a"b\\c\nd'),), (1 << 53) + 1)])
    assert text == '# HELP n Back\\\\slash\\nline.\n# TYPE n counter\nn{path="a\\"b\\\\c\\nd"} 9007199254740993\n'
