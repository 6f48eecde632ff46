"""A real node in this process, on a thread and an event loop of its own, for the tests that need one to answer.

With PENSTOCK_PEER=host:port they talk to that broker instead: the client must get along with Apache Kafka too.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from all_loops import OnLoop, require_reason
from waiting import PATIENCE_S


@pytest.fixture(scope="module")
def kafka_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    peer = os.environ.get("PENSTOCK_PEER")
    if peer:
        yield peer
        return
    from penstock.broker.node import Node
    from penstock.server.env import RealEnv
    from penstock.settings import NodeSettings

    env = RealEnv(str(tmp_path_factory.mktemp("data")))
    bound: list[str] = []
    is_up, may_end = threading.Event(), asyncio.Event()

    async def serve() -> None:
        node = Node(env, NodeSettings())
        await node.start()
        host, port = await node.listen_kafka("127.0.0.1", 0)
        bound.append(f"{host}:{port}")
        is_up.set()
        await may_end.wait()
        await node.stop()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    try:
        assert is_up.wait(PATIENCE_S), "the node did not start"
        yield bound[0]
        loop.call_soon_threadsafe(may_end.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the node did not stop"
    finally:
        env.shut()
        loop.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    require_reason(metafunc)


@pytest.fixture
def on_loop(on_loop: OnLoop) -> Callable[[Callable[[Any], Coroutine[Any, Any, Any]]], Any]:
    """Plays a scenario that is given an environment only, for clients: its clock and its chance."""
    return lambda scenario: on_loop(lambda _, env: scenario(env))
