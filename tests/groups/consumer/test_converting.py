"""A classic group becomes one of the new kind while it runs, and back; members of both kinds stand side by side."""

import pytest
from groups.consumer.company import NONE, Client, Company, settle

from penstock.errors import ErrorCode
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.states import GroupState
from penstock.wire.consumer_protocol import read_assignment, write_assignment, write_subscription

pytestmark = pytest.mark.invariant("groups.conversion-keeps-offsets")

OFFER = (("range", write_subscription(["t"])),)
TOLD_TO_JOIN = ErrorCode.REBALANCE_IN_PROGRESS


def owning(*numbers: int) -> tuple[tuple[str, bytes], ...]:
    """The offer of a cooperative member: what it reads, and what it has."""
    version_1 = b"\x00\x01" + write_subscription(["t"])[2:]
    owned = write_assignment({"t": numbers} if numbers else {})[2:-4]
    return (("cooperative-sticky", version_1 + owned),)


class Classic:
    """A classic member in a group of either kind, which does what it is told."""

    def __init__(self, company: Company, *, is_cooperative: bool = False) -> None:
        self.company = company
        self.is_cooperative = is_cooperative
        self.generation = -1
        self.owned: list[int] = []
        self.member_id, token = company.come(protocols=self.offer)
        self.token = token

    @property
    def offer(self) -> tuple[tuple[str, bytes], ...]:
        return owning(*self.owned) if self.is_cooperative else OFFER

    def lead(self, *numbers: int) -> None:
        """Joins a classic group alone, and assigns to itself."""
        self.generation = self.company.joined(self.token).generation
        self.company.sync(self.member_id, self.generation, {self.member_id: write_assignment({"t": numbers})})
        self.owned = list(numbers)

    def beat(self) -> ErrorCode:
        code = ErrorCode(self.company.beat(self.member_id, self.generation))
        if code is TOLD_TO_JOIN:
            self.join()
        return code

    def join(self) -> None:
        if not self.is_cooperative:
            self.owned = []
        joined = self.company.joined(self.company.join(self.member_id, protocols=self.offer))
        assert (joined.error, joined.leader, joined.members) == (NONE, "", ())
        self.generation = joined.generation
        synced = self.company.synced(self.company.sync(self.member_id, self.generation))
        if synced.error is NONE:
            self.owned = (read_assignment(synced.assignment) or {}).get("t", [])

    @property
    def has(self) -> list[tuple[str, int]]:
        return [("t", number) for number in self.owned]


def upgraded(company: Company, *, is_cooperative: bool = False) -> tuple[Classic, Client]:
    classic = Classic(company, is_cooperative=is_cooperative)
    classic.lead(0, 1, 2, 3)
    return classic, company.member("new")


def settle_both(classic: Classic, client: Client) -> None:
    for _ in range(8):
        assert classic.beat() in (NONE, TOLD_TO_JOIN)
        assert client.beat() is NONE
    assert classic.beat() is NONE


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_members_of_both_protocols_share(is_cooperative: bool) -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company, is_cooperative=is_cooperative)
    assert client.has == [], "the classic one has everything until it says otherwise"
    settle_both(classic, client)
    assert sorted(classic.has + client.has) == [("t", 0), ("t", 1), ("t", 2), ("t", 3)]
    assert len(classic.has) == len(client.has) == 2
    assert company.view().state is GroupState.STABLE


def test_nothing_is_owned_twice_on_the_way() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company, is_cooperative=True)
    for _ in range(10):
        for each in (classic, client):
            each.beat()
            assert not set(classic.has) & set(client.has)


def test_offsets_and_the_right_to_commit_stay() -> None:
    company = Company({"t": 4})
    classic = Classic(company)
    classic.lead(0, 1, 2, 3)
    company.commit(NewOffset("t", 0, 7), member_id=classic.member_id, generation=1)
    client = company.member("new")
    commit = NewOffset("t", 1, 8)
    assert company.commit(commit, member_id=classic.member_id, generation=1) == [NONE], "it is still of its generation"
    settle_both(classic, client)
    assert company.commit(commit, member_id=classic.member_id, generation=1) == [ErrorCode.ILLEGAL_GENERATION]
    assert company.commit(commit, member_id=classic.member_id, generation=classic.generation) == [NONE]
    assert company.offset("t", 0).offset == 7


def test_whoever_waits_for_a_join_is_told_to_come_again() -> None:
    company = Company({"t": 4})
    classic = Classic(company)
    classic.lead(0, 1, 2, 3)
    other, token = company.come(protocols=OFFER)
    assert company.is_parked(token)
    client = company.member("new")
    assert company.joined(token).error is TOLD_TO_JOIN
    late = company.joined(company.join(other, protocols=OFFER))
    assert late.error is NONE
    assert company.synced(company.sync(other, late.generation)).error is NONE
    settle_both(classic, client)
    assert company.view().state is not GroupState.EMPTY and len(company.view().members) == 3


def test_it_all_outlives_a_restart() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    classic.beat()
    company.restart()
    settle_both(classic, client)
    assert len(classic.has) == len(client.has) == 2


@pytest.mark.parametrize(
    ("policy", "code"),
    [("disabled", ErrorCode.GROUP_ID_NOT_FOUND), ("downgrade", ErrorCode.GROUP_ID_NOT_FOUND), ("upgrade", NONE), ("bidirectional", NONE)],
)
def test_the_policy_says_whether_a_group_is_upgraded(policy: str, code: ErrorCode) -> None:
    company = Company({"t": 4}, group_consumer_migration_policy=policy)
    Classic(company).lead(0, 1, 2, 3)
    before = dict(company.log)
    assert company.say_join("new").error is code
    assert (company.log == before) == (code is not NONE)


def test_members_that_are_no_consumers_or_cannot_be_read_keep_their_group() -> None:
    company = Company({"t": 4})
    _, token = company.come(protocol_type="connect")
    assert company.joined(token).error is NONE
    assert company.say_join("new").error is ErrorCode.GROUP_ID_NOT_FOUND
    _, token = company.come(group="other", protocols=(("range", b"?"),))
    assert company.say_join("new", group="other").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert company.say("new", -1, group="other").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_last_of_the_new_members_leaves_a_classic_group_that_rebalances() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    settle_both(classic, client)
    assert client.leave() is NONE
    assert company.coordinator.describe_consumer("g") is None
    company.wait(0)
    assert company.state is GroupState.PREPARING
    assert company.beat(classic.member_id, classic.generation) in (TOLD_TO_JOIN, ErrorCode.ILLEGAL_GENERATION)
    token = company.join(classic.member_id, protocols=OFFER)
    joined = company.joined(token)
    assert (joined.error, joined.leader, joined.generation > classic.generation) == (NONE, classic.member_id, True)


def test_a_downgrade_that_a_restart_follows_rebalances_all_the_same() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    settle_both(classic, client)
    client.leave()
    company.restart()
    company.wait(0)
    assert company.state is GroupState.PREPARING
    assert company.joined(company.join(classic.member_id, protocols=OFFER)).leader == classic.member_id


def test_without_a_downgrade_the_classic_members_are_served_as_before() -> None:
    company = Company({"t": 4}, group_consumer_migration_policy="upgrade")
    classic, client = upgraded(company)
    settle_both(classic, client)
    client.leave()
    company.wait(0)
    assert classic.beat() is TOLD_TO_JOIN
    assert len(classic.has) == 4


def test_a_classic_member_leaves() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    settle_both(classic, client)
    reply = company.leave(Leaving(classic.member_id), Leaving("nobody"), Leaving("new"))
    assert [left.error for left in reply.members] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    settle(client)
    assert len(client.has) == 4


def test_a_classic_member_that_does_not_join_again_in_time_goes() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    for _ in range(14):
        company.beat(classic.member_id, classic.generation)
        client.beat()
        company.wait(5)
    assert company.beat(classic.member_id, classic.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    settle(client)
    assert len(client.has) == 4


def test_one_that_joins_and_never_asks_what_it_got_goes() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    joined = company.joined(company.join(classic.member_id, protocols=OFFER))
    for _ in range(14):
        company.beat(classic.member_id, joined.generation)
        client.beat()
        company.wait(5)
    assert company.beat(classic.member_id, joined.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_wrong_request_of_a_classic_member_has_its_code() -> None:
    company = Company({"t": 4})
    classic, client = upgraded(company)
    settle_both(classic, client)
    me, generation = classic.member_id, classic.generation
    assert company.beat(me, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert company.beat("nobody", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.beat("new", client.epoch) is ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the new protocol"
    assert company.beat(me, generation, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert company.synced(company.sync(me, generation - 1)).error is ErrorCode.ILLEGAL_GENERATION
    assert company.synced(company.sync(me, generation, protocol="other")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = (("other", write_subscription(["t"])),)
    assert company.joined(company.join(me, protocols=other)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert company.joined(company.join(me, protocols=OFFER, session_ms=1)).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert company.joined(company.join(protocols=OFFER)).error is ErrorCode.MEMBER_ID_REQUIRED


def test_a_static_member_changes_its_protocol_and_keeps_its_place() -> None:
    company = Company({"t": 4})
    client = company.member("new")
    token = company.join(instance="s", protocols=OFFER)
    first = company.joined(token)
    assert first.error is NONE
    company.sync(first.member_id, first.generation, instance="s")
    client.beat()
    client.beat()
    reply = company.say_join("again", instance_id="s")
    assert reply.error is NONE
    assert company.beat(first.member_id, first.generation, instance="s") is ErrorCode.FENCED_INSTANCE_ID
    assert [view.member.member_id for view in company.view().members] == ["again", "new"]
