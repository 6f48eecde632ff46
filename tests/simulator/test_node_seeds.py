"""A whole node in simulated worlds: whatever the seed, it keeps its promises. test_one_story.py: the seed alone tells what happens.

`make test` runs the short worlds, `make test-slow` the first sixty of all, `make soak` five thousand more; `penstock simulate --seed N`
replays one.
"""

import pytest

from penstock.simulator import damage
from penstock.simulator.delivery_menu import with_deliveries
from penstock.simulator.faults import HARMLESS
from penstock.simulator.menu import draw_menu
from penstock.simulator.run import ACTORS, draw_trouble, run_seed

CHUNK = 10
IN_SLOW = 60
IN_SOAK = 5_000
# Of the first 300 those that take least time and together meet, at least three times each, whatever these meet: every kind of client, of
# trouble, of damage, of setting and of end. Half of all worlds take twice as long as one of these, and some twenty times.
SHORT = (
    17, 33, 41, 43, 44, 60, 67, 76, 92, 97, 102, 106, 127, 138, 140, 143, 147, 151, 152, 160, 163, 179, 186, 192, 217, 228, 233, 234, 235,
    244, 263, 264, 266, 276, 284, 288,
)  # fmt: skip
pytestmark = [
    pytest.mark.invariant(
        "log.ack-after-flush",
        "log.unknown-end-not-reported",
        "log.reads-below-watermark",
        "log.producer-sequence",
        "log.compaction-keeps-last",
        "groups.consumer-one-owner",
        "groups.consumer-epochs-grow",
        "groups.consumer-all-assigned",
        "groups.killed-members-lose-nothing",
        "transactions.all-or-nothing",
    ),
]


def check_promises(first: int, count: int = CHUNK) -> None:
    for seed in range(first, first + count):
        violations = run_seed(seed).violations
        assert not violations, f"penstock simulate --seed {seed}: {violations[0]}"


@pytest.mark.parametrize("seed", SHORT)
def test_a_node_keeps_its_promises_in_short_worlds(seed: int) -> None:
    check_promises(seed, 1)


def test_short_worlds_meet_every_kind_of_client_and_of_trouble() -> None:
    menus = [with_deliveries(draw_menu(seed)) for seed in SHORT]
    elsewhere = {kind for kind in ACTORS if kind == "share" or kind.startswith("queue ")}  # Worlds of queues are drawn apart.
    assert {client.kind for menu in menus for client in menu.clients} == set(ACTORS) - elsewhere
    damages = {damage.READ_FAILURE, damage.CACHES, damage.ROT, damage.ROT_ELSEWHERE}
    assert {kind for menu in menus for kind in draw_trouble(menu).kinds} == damages | set(HARMLESS)


@pytest.mark.slow(stays="tests/simulator/test_node_seeds.py::test_a_node_keeps_its_promises_in_short_worlds")
@pytest.mark.parametrize("first", range(0, IN_SLOW, CHUNK))
def test_a_node_keeps_its_promises_in_every_world(first: int) -> None:
    check_promises(first)


@pytest.mark.soak(stays="tests/simulator/test_node_seeds.py::test_a_node_keeps_its_promises_in_short_worlds")
@pytest.mark.parametrize("first", range(IN_SLOW, IN_SLOW + IN_SOAK, CHUNK))
def test_a_node_keeps_its_promises_in_many_more_worlds(first: int) -> None:
    check_promises(first)
