"""What may be committed: only what was handed out, only of partitions that are still ours."""

from penstock.client.progress import Progress
from penstock.client.records import Message


def message(offset: int, partition: int = 0) -> Message:
    return Message("t", partition, offset, None, b"v", (), None)


def holding(*partitions: int) -> Progress:
    progress = Progress()
    progress.assign([("t", partition) for partition in partitions])
    return progress


def test_nothing_is_owed_before_something_was_handed_out():
    assert holding(0, 1).owed() == {}
    assert holding(0).position(("t", 0)) is None


def test_what_is_owed_is_the_offset_after_the_last_one_handed_out():
    progress = holding(0, 1)
    for each in (message(4), message(5), message(7), message(2, partition=1)):
        progress.handed(each)
    assert progress.owed() == {("t", 0): 8, ("t", 1): 3}
    assert progress.position(("t", 0)) == 8


def test_what_was_committed_is_no_longer_owed():
    progress = holding(0, 1)
    progress.handed(message(4))
    progress.handed(message(9, partition=1))
    progress.committed({("t", 0): 5, ("t", 1): 7})
    assert progress.owed() == {("t", 1): 10}
    assert progress.position(("t", 0)) == 5


def test_a_partition_taken_away_is_forgotten_and_nothing_more_is_noted_of_it():
    progress = holding(0, 1)
    progress.handed(message(4))
    progress.handed(message(9, partition=1))
    progress.revoke([("t", 0)])
    progress.handed(message(5))
    assert progress.owed() == {("t", 1): 10}
    assert list(progress.assigned) == [("t", 1)]


def test_a_partition_that_comes_back_starts_anew():
    progress = holding(0)
    progress.handed(message(4))
    progress.revoke([("t", 0)])
    progress.assign([("t", 0)])
    assert progress.owed() == {}
    progress.handed(message(2))
    assert progress.owed() == {("t", 0): 3}


def test_after_a_seek_what_was_handed_out_before_is_not_owed():
    progress = holding(0)
    progress.handed(message(4))
    progress.sought(("t", 0), 1)
    assert progress.owed() == {}
    assert progress.position(("t", 0)) == 1


def test_messages_stand_for_themselves_and_all_before_them():
    progress = holding(0, 1)
    assert progress.after([message(7), message(3), message(0, partition=1)]) == {("t", 0): 8, ("t", 1): 1}


def test_turning_back_goes_to_the_first_that_was_handed_out_and_not_committed():
    progress = holding(0, 1)
    for each in (message(4), message(5), message(7), message(2, partition=1)):
        progress.handed(each)
    assert progress.since() == {("t", 0): 4, ("t", 1): 2}
    progress.committed({("t", 0): 6, ("t", 1): 3})
    assert progress.since() == {("t", 0): 6}
    progress.sought(("t", 0), 6)
    assert progress.since() == {}


def test_what_was_taken_away_in_the_middle_is_known_until_it_is_forgiven():
    progress = holding(0, 1, 2)
    progress.handed(message(4))
    progress.handed(message(9, partition=1))
    progress.committed({("t", 1): 10})
    progress.revoke([("t", 0), ("t", 1), ("t", 2)])
    assert progress.lost() == [("t", 0)]
    assert progress.since() == {}
    progress.assign([("t", 0)])
    assert progress.lost() == [("t", 0)], "that it came back does not undo what another may have done meanwhile"
    progress.forgive()
    assert progress.lost() == []
