"""`python -m benchmarks.load produce|fetch|end-to-end`: one load against one broker; its figures as one line of JSON."""

import argparse
import gc
import json
import sys

from benchmarks.load.end_to_end import EndToEndLoad
from benchmarks.load.fetching import FetchLoad
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.load.producing import ProduceLoad


def main() -> None:
    arguments = _arguments()
    load = _load(arguments)
    gc.disable()  # A collector's pause here would be read as the broker's.
    try:
        outcome = load.run(arguments.host, arguments.port, Timing(arguments.warm_up, arguments.seconds, tuple(arguments.broker_pid)))
    except (UnexpectedReply, OSError) as error:
        sys.exit(f"load: {error}")
    if not outcome.requests:
        sys.exit(f"load: no request was answered in {arguments.seconds} s")
    print(json.dumps(outcome.as_json()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("kind", choices=["produce", "fetch", "end-to-end"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True, help="must exist")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--batch-bytes", type=int, default=0, help="0: one record per batch")
    parser.add_argument("--connections", type=int, default=2)
    parser.add_argument("--depth", type=int, default=5, help="requests in flight per connection")
    parser.add_argument("--partitions-per-request", type=int, default=1)
    parser.add_argument("--rate", type=int, default=1000, help="records a second, end to end")
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="whose CPU time to report beside our own")
    parser.add_argument("--to-leaders", type=int, default=0, help="1: a cluster; the connections go to each node that leads")
    return parser.parse_args()


def _load(arguments: argparse.Namespace) -> ProduceLoad | FetchLoad | EndToEndLoad:
    match arguments.kind:
        case "produce":
            return _produce_load(arguments)
        case "fetch":
            batch, records = _produce_load(arguments).encoded_batch()
            return FetchLoad(arguments.topic, arguments.partitions, len(batch), records, arguments.connections, arguments.depth)
        case _:
            return EndToEndLoad(arguments.topic, arguments.rate)


def _produce_load(arguments: argparse.Namespace) -> ProduceLoad:
    return ProduceLoad(
        arguments.topic,
        arguments.partitions,
        arguments.batch_bytes,
        arguments.connections,
        arguments.depth,
        arguments.partitions_per_request,
        bool(arguments.to_leaders),
    )


if __name__ == "__main__":
    main()
