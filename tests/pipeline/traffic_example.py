"""Findings of a made-up hour: a steady topic with a spike and a silence, a group that falls behind, and a key that is too heavy."""

import random

from penstock.pipeline.traffic.findings import DelayRow, Findings, LagRow, WindowRow, topic_findings
from penstock.pipeline.traffic.skew import judge, partition_counts
from penstock.wire.murmur2 import partition_of_key

WINDOW_S = 30
START = 1_767_261_600
HOSTILE = b"<script>alert(1)</script>"


def findings() -> Findings:
    rng = random.Random(5)
    counts = [max(0, round(rng.gauss(1_500, 40))) for _ in range(120)]
    counts[60:63] = [3_600, 4_100, 2_900]
    counts[90:94] = [0, 0, 0, 0]
    windows = [WindowRow("orders.raw", 0, START + n * WINDOW_S, count, count * 110) for n, count in enumerate(counts) if count]
    keys = {b"c-%d" % number: rng.randrange(20, 60) for number in range(2_500)} | {b"c-0": 60_000, HOSTILE: 900}
    tried = partition_counts(6)
    placed = {count: [0] * count for count in tried}
    for key, records in keys.items():
        for count in tried:
            placed[count][partition_of_key(key, count)] += records
    heaviest = sorted(((key, records, records * 110) for key, records in keys.items()), key=lambda row: -row[1])[:10]
    times = [START + n * WINDOW_S for n in range(120)]
    behind = [LagRow(at, max(0, (n - 60) * 300 if n < 90 else 9_000 - (n - 90) * 400)) for n, at in enumerate(times)]
    took = [DelayRow(at, 40 + rng.random() * 9, 150 + rng.random() * 60, 300 + rng.random() * 400) for at in times]
    one = topic_findings(
        "orders.raw", WINDOW_S, windows, skew=judge(placed[6], heaviest, placed),
        lags={"orders.validated": [LagRow(at, rng.randrange(300)) for at in times], "billing": behind},
        delays={"orders.validated": [row for n, row in enumerate(took) if not 90 <= n < 94]},
    )  # fmt: skip
    quiet = topic_findings("audit", WINDOW_S, [], skew=judge([0, 0], [], {2: [0, 0]}), lags={}, delays={})
    return Findings("127.0.0.1:9092", START + 3_700, [one, quiet])
