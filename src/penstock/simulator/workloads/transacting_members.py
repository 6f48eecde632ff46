"""Workers in transactions that share their input as members of one group (KIP-447): each has a transactional id of its own.

Nobody fences them by id, so the group must: offsets of a member that has lost its membership are refused, and whoever gets a partition
waits until the transaction of the one before, if it holds offsets of it, has ended.
"""

from penstock.peers.consumer_member import ConsumerMember, Subscription
from penstock.peers.failures import MemberFenced, PeerFailure
from penstock.simulator.workloads.echoes import EchoingClient
from penstock.simulator.workloads.transactions import CALL_SECONDS, Life, Transacting

_LEAVES = 0.5  # The others vanish, and their session ends them.


class TransactingMember(Transacting):
    async def _work(self, client: EchoingClient, life: Life) -> None:
        subscription = Subscription([self._options["source"]], rebalance_timeout_ms=self._options["rebalance_ms"])
        member = ConsumerMember(client, self._group, subscription, deadline_s=CALL_SECONDS)
        await self._follow(member, life)
        while await self._goes_on(client, life):
            await self._pause(client)
            await self._follow(member, life)
        if self._env.rng.random() < _LEAVES:
            await member.leave()

    async def _follow(self, member: ConsumerMember, life: Life) -> None:
        """One heartbeat, between two transactions: what is revoked is let go with nothing of it under way."""
        try:
            await member.beat()
            life.group = member.identity
            life.positions = {where: offset for where, offset in life.positions.items() if where in member.owned}
            added = [where for where in member.owned if where not in life.positions]
            places = await member.committed(added) if added else {}
            life.positions |= {where: places.get(where, 0) for where in added}
        except MemberFenced:
            life.positions = {}
        except PeerFailure:
            return  # Nobody answers, or the epoch has moved on: it works with what it has, until the next heartbeat.
