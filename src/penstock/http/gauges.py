"""What a node is like at this moment, read when somebody asks. What only grows is counted in broker/metrics.py."""

from collections.abc import Iterator

from penstock.broker.metrics import Sample
from penstock.broker.node import Node


def gauges(node: Node) -> Iterator[Sample]:
    partitions = list(node.partitions)
    values: list[tuple[str, float, str]] = [
        ("ready", node.health().is_ready, "1 while clients are served."),
        ("connections", len(node.connections), "Client connections that are open."),
        ("partitions", len(partitions), "Partitions on this node."),
        ("partitions_offline", sum(each.log.failure is not None for each in partitions), "Partitions that take no writes any more."),
        ("partitions_damaged", node.damaged_copies.count, "Partitions of which this node's copy lacks records, or has bytes that changed."),
        ("log_bytes", sum(each.log.size_bytes for each in partitions), "Bytes in the logs of all partitions."),
        ("produces_parked", len(node.parked_produces), "Produce requests that wait for their flush."),
        ("request_bytes", node.request_room.bytes_taken, "Memory that requests under way hold."),
        ("reply_bytes", node.reply_room.bytes_taken, "Memory that replies hold which clients have not taken yet."),
        ("dirty_ratio_max", node.cleaner.dirty_ratio_max, "The dirtiest compacted log: which part of it compaction has not seen to."),
        ("compaction_bytes_so_far", node.cleaner.bytes_so_far, "Bytes that the compaction under way has read; 0 when none is."),
        ("disk_is_low", node.disk_is_low, "1 while produce requests are refused for want of disk room."),
        ("disk_is_short", node.disk_room.is_short, "1 while other nodes shall lead instead of this one, for want of disk room."),
        ("disk_reserve_bytes", node.disk_room.has_reserve * node.disk_room.reserve_bytes, "The disk's reserve; 0 while it is given up."),
        ("disk_free_bytes", node.env.disk.free_bytes(), "Room on the disk of the data directory."),
    ]
    for name, value, reason in values:
        yield Sample(f"penstock_{name}", "gauge", reason, (), value)
