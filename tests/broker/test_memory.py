"""Room for requests and replies: bounded, fair, given back."""

from penstock.broker.memory import REPLY_BYTES_MIN, ReplyRoom, RequestRoom


def test_whoever_came_first_gets_room_first() -> None:
    room, served = RequestRoom(100), []
    assert room.take(80, lambda: served.append("a"))
    assert not room.take(50, lambda: served.append("b"))
    assert not room.take(10, lambda: served.append("c"))
    room.give_back(80)
    assert served == ["b", "c"]
    assert room.bytes_taken == 60


def test_a_request_larger_than_all_the_room_is_served_alone() -> None:
    room = RequestRoom(100)
    assert room.take(500, lambda: None)
    assert not room.take(1, lambda: None)


def test_somebody_who_left_the_queue_is_not_called() -> None:
    room, served = RequestRoom(100), []

    def never() -> None:
        served.append("gone")

    room.take(100, lambda: None)
    room.take(60, never)
    room.leave_queue(never)
    room.give_back(100)
    assert served == []
    assert room.bytes_taken == 0


def test_a_crowd_that_never_reads_cannot_fill_the_room() -> None:
    room, crowd = ReplyRoom(128 << 20), 5_000
    for _ in range(crowd):
        room.take(min(1 << 20, room.fair_share()))
    assert room.bytes_taken <= (128 << 20) + crowd * REPLY_BYTES_MIN
    assert room.fair_share() >= REPLY_BYTES_MIN
