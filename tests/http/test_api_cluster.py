"""The REST API of one node of several: every node, the quorum, what is unwell, and who leads and holds what."""

import asyncio
import re
import socket
from pathlib import Path

from http_talk import SECONDS_MAX, Http
from serving_cluster import ServingCluster, create

from penstock.http.app import application
from penstock.http.door import HttpDoor
from penstock.vocabulary import NodeId

API = "/api/v1"


def test_every_node_is_told_and_what_is_wrong_when_one_is_away(tmp_path: Path) -> None:
    async def whole() -> None:
        cluster = ServingCluster(tmp_path, ("broker,controller", "broker,controller", "broker,controller", "broker"))
        await cluster.open()
        listening = socket.create_server(("127.0.0.1", 0))
        door = HttpDoor(*application(cluster.nodes[1]))
        door.open(listening)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                await _story(cluster, Http(listening.getsockname()))
        finally:
            await door.close()
            await cluster.close()

    asyncio.run(whole())


async def _story(cluster: ServingCluster, http: Http) -> None:
    line = await cluster.line(1)
    await create(line, "a", (1, 4), (2, 3), (4,), min_insync_replicas="2")
    await _all_is_well(cluster, http)
    await cluster.stop(4)
    await cluster.until(lambda node: node.image.nodes[NodeId(4)].is_fenced)
    told = (await http.get(f"{API}/nodes")).json
    away = told["nodes"][3]
    assert (away["state"], away["roles"], away["leads"], away["replicas"], away["in_sync"]) == ("fenced", ["broker"], 0, 2, 0)
    assert (told["under_replicated"], told["below_min_in_sync"], told["leaderless"], told["reassigning"]) == (2, 2, 1, 0)
    unwell = (await http.get(f"{API}/unwell")).json
    rows = [(row["partition"], row["leader"], row["in_sync"], row["eligible"], row["offline"]) for row in unwell["partitions"]]
    assert rows == [(0, 1, [1], [4], [4]), (2, None, [], [4], [4])]
    assert (unwell["left_out"], {row["is_below_min_in_sync"] for row in unwell["partitions"]}) == (0, {True})
    assert "penstock_peers_turned_away_total" not in (await http.get("/metrics")).text
    reader, writer = await asyncio.open_connection(*cluster.peers_address(1))
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await reader.read()
    writer.close()
    metrics = (await http.get("/metrics")).text
    assert re.search(r'\npenstock_peers_turned_away_total\{reason="\w+"\} 1\n', metrics)
    for name, value in (("under_replicated", 2), ("below_min_in_sync", 2), ("leaderless", 1), ("reassigning", 0)):
        assert f"\npenstock_cluster_partitions_{name} {value}\n" in metrics
    assert "\npenstock_cluster_nodes 4\n" in metrics and "\npenstock_cluster_nodes_fenced 1\n" in metrics


async def _all_is_well(cluster: ServingCluster, http: Http) -> None:
    told = (await http.get(f"{API}/nodes")).json
    assert [(row["id"], row["state"], row["rack"]) for row in told["nodes"]] == [(each, "live", f"rack-{each}") for each in (1, 2, 3, 4)]
    assert [row["id"] for row in told["nodes"] if row["is_this"]] == [1]
    assert [row["id"] for row in told["nodes"] if row["is_controller"]] == [told["controller"]] == [cluster.controller]
    assert [(row["leads"], row["replicas"]) for row in told["nodes"]] == [(1, 1), (1, 1), (0, 1), (1, 2)]
    assert (await http.get(f"{API}/unwell")).json == {"partitions": [], "left_out": 0}
    quorum = (await http.get(f"{API}/quorum")).json
    assert (quorum["leader"], quorum["majority"]) == (cluster.controller, 2)
    assert [row["node"] for row in quorum["voters"]] == [1, 2, 3]
    assert [row["node"] for row in quorum["observers"]] == [4]
    assert all(row["end_offset"] >= 0 and row["silent_ms"] >= 0 for row in quorum["voters"])
    rows = (await http.get(f"{API}/topics/a/partitions")).json["partitions"]
    assert [(row["leader"], row["replicas"], row["partition_epoch"], row["end_offset"], row["bytes"]) for row in rows] == [
        (1, [1, 4], 0, 0, 0), (2, [2, 3], 0, None, None), (4, [4], 0, None, None),
    ], "of partitions that lie elsewhere there are no offsets here"  # fmt: skip
