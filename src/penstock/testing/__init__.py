"""A real node for other people's tests: on a free port, in a temporary directory, ready in a fraction of a second, gone afterwards.

    from penstock.testing import broker

    with broker(num_partitions=3) as node:
        topic = node.create_topic(partitions=6)
        use(node.bootstrap, topic)

`async_broker` is the same for asyncio. With pytest nothing needs importing: the fixtures `penstock_broker` (one node for the whole run)
and `penstock_topic` (a fresh topic for each test) are there as soon as Penstock is installed.

| file | what lives there |
|---|---|
| `brokers` | the node as a test sees it: started, used, stopped |
| `async_brokers` | the same without ever holding up an event loop |
| `child` | the process behind it, which ends with its parent |
| `names` | settings as Python spells them |
| `topics` | making a topic |
| `plugin` | the pytest fixtures |

Not here: fakes. What a test talks to is what production talks to. The names below are loaded when they are first asked for, because every
run of pytest passes through here on its way to `plugin`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.async_brokers import AsyncBroker, async_broker
    from penstock.testing.brokers import Broker, BrokerFailed, broker
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "async_brokers" if "async" in name.lower() else "brokers"
        return getattr(import_module(f"{__name__}.{home}"), name)


__all__ = ["broker", "Broker", "async_broker", "AsyncBroker", "BrokerFailed"]
