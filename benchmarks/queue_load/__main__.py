"""`python -m benchmarks.queue_load rates|pace|shares`: one load against one server; its figures as one line of JSON."""

import argparse
import asyncio
import gc
import json
import sys

from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.pipeline import Timing
from benchmarks.queue_load.doors import PythonDoor, ShareDoor, SqsDoor
from benchmarks.queue_load.pace import Door, PaceLoad
from benchmarks.queue_load.rates import RateLoad
from benchmarks.queue_load.shares import ShareLoad

HOST = "127.0.0.1"


def main() -> None:
    arguments = _arguments()
    gc.disable()  # A collector's pause here would be read as the server's.
    try:
        figures = asyncio.run(_run(arguments, Timing(arguments.warm_up, arguments.seconds, tuple(arguments.broker_pid))))
    except (UnexpectedReply, OSError, TimeoutError) as error:
        sys.exit(f"load: {type(error).__name__}: {error}")
    print(json.dumps(figures))


async def _run(arguments: argparse.Namespace, timing: Timing) -> dict[str, float]:
    match arguments.kind:
        case "rates":
            return await RateLoad(arguments.batch, arguments.connections).run(HOST, arguments.port, timing)
        case "shares":
            return await ShareLoad(arguments.batch, arguments.connections).run(HOST, arguments.port, timing)
        case _:
            return await PaceLoad(_door(arguments.door, arguments.port), arguments.rate).run(timing)


def _door(name: str, port: int) -> Door:
    match name:
        case "sqs":
            return SqsDoor(HOST, port)
        case "python":
            return PythonDoor(HOST, port)
        case _:
            return ShareDoor(HOST, port)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_load", description=__doc__)
    parser.add_argument("kind", choices=["rates", "pace", "shares"])
    parser.add_argument("--port", type=int, required=True, help="of HTTP; of Kafka's protocol for shares")
    parser.add_argument("--batch", type=int, default=10, help="messages of one call")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--door", choices=["sqs", "python", "share"], default="sqs")
    parser.add_argument("--rate", type=int, default=100, help="messages a second, of pace")
    parser.add_argument("--warm-up", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--broker-pid", type=int, action="append", default=[], help="whose CPU time to report beside our own")
    return parser.parse_args()


if __name__ == "__main__":
    main()
