"""The REST API of one node of several: every node, the quorum, what is unwell, and who leads and holds what. In virtual time."""

import asyncio
import re
from contextlib import suppress

from clusters.scene import BOTH, Scene
from http_talk import HTTP, Http
from serving import Line
from serving_cluster import create

from penstock.http.app import application
from penstock.http.door import HttpDoor
from penstock.simulator.clusters.menu import KAFKA_PORT, PEER_PORT
from penstock.simulator.env import SimEnv
from penstock.simulator.network import SimSocket
from penstock.vocabulary import NodeId

API = "/api/v1"


def test_every_node_is_told_and_what_is_wrong_when_one_is_away() -> None:
    with Scene((BOTH, BOTH, BOTH, "broker")) as scene:

        async def begin(env: SimEnv) -> None:
            door = HttpDoor(*application(scene.node(1)))
            door.open(SimSocket(HTTP))  # type: ignore[arg-type]
            line = await Line.open(("127.0.0.1", KAFKA_PORT))
            await create(line, "a", (1, 4), (2, 3), (4,), min_insync_replicas="2")
            line.close()

        scene.world.call(scene.host(1), begin)
        scene.until(lambda: scene.node(1).partitions.by_name.get("a"))
        scene.world.call(scene.host(1), lambda env: _all_is_well(Http(HTTP), scene.controller()))
        scene.stop(4)
        scene.until(lambda: scene.node(1).image.nodes[NodeId(4)].is_fenced)
        scene.world.call(scene.host(1), lambda env: _one_is_away(Http(HTTP)))


async def _one_is_away(http: Http) -> None:
    told = (await http.get(f"{API}/nodes")).json
    away = told["nodes"][3]
    assert (away["state"], away["roles"], away["leads"], away["replicas"], away["in_sync"]) == ("fenced", ["broker"], 0, 2, 0)
    assert (told["under_replicated"], told["below_min_in_sync"], told["leaderless"], told["reassigning"]) == (2, 2, 1, 0)
    unwell = (await http.get(f"{API}/unwell")).json
    rows = [(row["partition"], row["leader"], row["in_sync"], row["eligible"], row["offline"]) for row in unwell["partitions"]]
    assert rows == [(0, 1, [1], [4], [4]), (2, None, [], [4], [4])]
    assert (unwell["left_out"], {row["is_below_min_in_sync"] for row in unwell["partitions"]}) == (0, {True})
    assert "penstock_peers_turned_away_total" not in (await http.get("/metrics")).text
    reader, writer = await asyncio.open_connection("127.0.0.1", PEER_PORT)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    with suppress(ConnectionError):
        await reader.read()
    metrics = (await http.get("/metrics")).text
    assert re.search(r'\npenstock_peers_turned_away_total\{reason="\w+"\} 1\n', metrics)
    for name, value in (("under_replicated", 2), ("below_min_in_sync", 2), ("leaderless", 1), ("reassigning", 0)):
        assert f"\npenstock_cluster_partitions_{name} {value}\n" in metrics
    assert "\npenstock_cluster_nodes 4\n" in metrics and "\npenstock_cluster_nodes_fenced 1\n" in metrics


async def _all_is_well(http: Http, controller: int) -> None:
    told = (await http.get(f"{API}/nodes")).json
    assert [(row["id"], row["state"], row["rack"]) for row in told["nodes"]] == [(each, "live", f"rack-{each}") for each in (1, 2, 3, 4)]
    assert [row["id"] for row in told["nodes"] if row["is_this"]] == [1]
    assert [row["id"] for row in told["nodes"] if row["is_controller"]] == [told["controller"]] == [controller]
    assert [(row["leads"], row["replicas"]) for row in told["nodes"]] == [(1, 1), (1, 1), (0, 1), (1, 2)]
    assert (await http.get(f"{API}/unwell")).json == {"partitions": [], "left_out": 0}
    quorum = (await http.get(f"{API}/quorum")).json
    assert (quorum["leader"], quorum["majority"]) == (controller, 2)
    assert [row["node"] for row in quorum["voters"]] == [1, 2, 3]
    assert [row["node"] for row in quorum["observers"]] == [4]
    assert all(row["end_offset"] >= 0 and row["silent_ms"] >= 0 for row in quorum["voters"])
    rows = (await http.get(f"{API}/topics/a/partitions")).json["partitions"]
    assert [(row["leader"], row["replicas"], row["partition_epoch"], row["end_offset"], row["bytes"]) for row in rows] == [
        (1, [1, 4], 0, 0, 0), (2, [2, 3], 0, None, None), (4, [4], 0, None, None),
    ], "of partitions that lie elsewhere there are no offsets here"  # fmt: skip
