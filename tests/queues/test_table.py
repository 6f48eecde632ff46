"""The table of legal moves: each is made by what the table says, and a decision that makes another one stops the node."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from queues.scene import Scene

from penstock.errors import BrokenPromise
from penstock.queues.commands import QUEUE_GROUP, Bind, Buried, Cancel, Purge, Rewind, Unbind, Verb
from penstock.queues.draft import Draft
from penstock.queues.policy import Backoff, Policy
from penstock.queues.states import MOVES, State

READY, DELAYED, LEASED, BURYING, DONE = State.READY, State.DELAYED, State.LEASED, State.BURYING, State.DONE

Act = Callable[[Scene], object]


def purge(scene: Scene) -> None:
    scene.turn(Purge("t", QUEUE_GROUP))


def rewind(scene: Scene) -> None:
    scene.turn(Rewind("t", QUEUE_GROUP, 0))
    scene.learn_again()


def settled(verb: Verb, delay_ms: int | None = None) -> Act:
    return lambda scene: scene.settle(scene.held, verb, delay_ms)


def extended_late(*, backoff_ms: int) -> Act:
    def act(scene: Scene) -> None:
        scene.policy = replace(scene.policy, backoff=Backoff(backoff_ms))
        scene.wait(60_000)
        held = scene.take()[0]
        scene.wait(30_000)
        assert scene.stands(0) is (DELAYED if backoff_ms else READY)
        scene.settle(held, Verb.EXTEND, 5_000)

    return act


ACTS: list[tuple[State, State, Act]] = [
    (READY, LEASED, lambda scene: scene.take()),
    (READY, LEASED, extended_late(backoff_ms=0)),
    (READY, DONE, lambda scene: scene.turn(Cancel("t", QUEUE_GROUP, (0,)))),
    (READY, DONE, purge),
    (READY, BURYING, lambda scene: scene.turn(Bind("t", QUEUE_GROUP, bytes(16), 0, (0,), sent_off=True))),
    (BURYING, READY, lambda scene: scene.turn(Unbind("t", QUEUE_GROUP, (0,)))),
    (DELAYED, READY, lambda scene: scene.wait(60_000)),
    (DELAYED, LEASED, extended_late(backoff_ms=90_000)),
    (DELAYED, DONE, lambda scene: scene.turn(Cancel("t", QUEUE_GROUP, (0,)))),
    (DELAYED, DONE, purge),
    (LEASED, DONE, settled(Verb.DONE)),
    (LEASED, DONE, purge),
    (LEASED, LEASED, settled(Verb.EXTEND, 5_000)),
    (LEASED, READY, settled(Verb.RELEASE, 0)),
    (LEASED, READY, settled(Verb.EXTEND, 0)),
    (LEASED, READY, settled(Verb.RETURN)),
    (LEASED, READY, lambda scene: scene.wait(30_000)),
    (LEASED, DELAYED, settled(Verb.RELEASE, 60_000)),
    (LEASED, BURYING, settled(Verb.REJECT)),
    (BURYING, DONE, lambda scene: scene.turn(Buried("t", QUEUE_GROUP, (0,)))),
    (BURYING, DONE, purge),
    (DONE, READY, rewind),
]


class Standing(Scene):
    """One message in a given state."""

    def __init__(self, state: State) -> None:
        super().__init__(Policy(dead_letter="dead"))
        if state is DELAYED:
            self.send(deliver_at=self.now + 60_000)
        else:
            self.send()
        if state in (LEASED, BURYING, DONE):
            self.held = self.take()[0]
        if state is BURYING:
            self.settle(self.held, Verb.REJECT)
        if state is DONE:
            self.done(self.held)


@pytest.mark.parametrize(("before", "after", "act"), ACTS)
def test_a_move_is_made(before: State, after: State, act: Act) -> None:
    scene = Standing(before)
    assert scene.stands(0) is before
    act(scene)
    assert scene.stands(0) is after
    for from_checkpoint in (False, True):
        scene.load(from_checkpoint=from_checkpoint)
        assert scene.stands(0) is after


def test_every_move_of_the_table_is_made_and_no_other() -> None:
    assert {(before, after) for before, after, _ in ACTS} == MOVES.keys()


def test_another_move_stops_the_node() -> None:
    scene = Standing(BURYING)
    draft = Draft(scene.state.ledgers[QUEUE_GROUP], scene.state.messages, scene.policy, lambda: 0.5, scene.now)
    with pytest.raises(BrokenPromise, match="legal moves"):
        draft._move(0, BURYING, DELAYED)
