"""The links that this node opened to the others: whom to tell, whom to ask."""

from collections.abc import Callable, Sequence

from penstock.env import Env
from penstock.links.channel import DEADLINES, Deadlines
from penstock.links.handshake import Introduction, check_secret
from penstock.links.kinds import LANE_OF, Kind, Lane
from penstock.links.link import Calling, Link
from penstock.vocabulary import Address, Buffer, NodeId

# The longest answer is a replica fetch's: `replica.fetch.response.max.bytes` and then one batch, which max.message.bytes lets have 128 MiB.
ANSWER_BYTES_MAX = 256 * 1024 * 1024


class Links:
    """`address_of` is asked at each try to connect: a node that comes back elsewhere is found as soon as the image says so."""

    def __init__(
        self, env: Env, introduction: Introduction, secret: bytes, *,
        address_of: Callable[[NodeId], Address | None], report: Callable[[str], None], answer_bytes_max: int = ANSWER_BYTES_MAX,
        deadlines: Deadlines = DEADLINES,
    ) -> None:  # fmt: skip
        check_secret(secret)
        self.on_contact_lost: Callable[[NodeId], None] = lambda node: None  # A link that was up broke, and not because it was closed here.
        self._calling = Calling(env, introduction, secret, address_of, report, self._lost, answer_bytes_max, deadlines)
        self._links: dict[tuple[NodeId, Lane], Link] = {}
        self._is_closed = False

    def tell(self, node: NodeId, kind: Kind, body: Buffer) -> None:
        """One way, and perhaps never: dropped when there is no link and none can be made, or when too much waits already."""
        if not self._is_closed:
            self._to(node, LANE_OF[kind]).tell(kind, (body,))

    async def ask(
        self, node: NodeId, kind: Kind, body: Buffer | Sequence[Buffer], *, timeout_s: float, lane: Lane | None = None
    ) -> memoryview:
        """The answer, in memory of its own. Raises a `LinkFailure`. Where there is no link, it waits for one try to make it."""
        pieces = (body,) if isinstance(body, bytes | bytearray | memoryview) else body
        return await self._to(node, LANE_OF[kind] if lane is None else lane).ask(kind, pieces, timeout_s=timeout_s)

    def is_up(self, node: NodeId, lane: Lane = Lane.CALLS) -> bool:
        link = self._links.get((node, lane))
        return link is not None and link.is_up

    async def close(self) -> None:
        """Ends all links. Who still waits for an answer hears that the link is lost."""
        self._is_closed = True
        for link in self._links.values():
            link.close()

    def _to(self, node: NodeId, lane: Lane) -> Link:
        link = self._links.get((node, lane))
        if link is None:
            link = self._links[node, lane] = Link(self._calling, node, lane)
            if self._is_closed:
                link.close()
        return link

    def _lost(self, node: NodeId) -> None:
        if not self._is_closed:
            self.on_contact_lost(node)
