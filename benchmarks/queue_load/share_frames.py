"""ShareFetch of one partition, version 2, as bytes, written and read by hand: the generator must not cost more than what it measures.

Not with the broker's own codec: a mistake there must not hide itself here. Record bytes are stepped over.
"""

from struct import Struct, pack

from benchmarks.load.frames import CLIENT_ID, UnexpectedReply

ACCEPT = b"\2\1\0"  # One type for all of the range; no tagged fields.

_ASKED = Struct(">iiiiiibb")  # Epoch, wait, least and most bytes, most records, batch size, acquire mode, renews.
_SPAN = Struct(">qq")
_CODE = Struct(">h")
_ROW = Struct(">16sbih")  # Topic id, one partition, its index, its error.
_ACQUIRED = Struct(">qqhb")

Ranges = list[tuple[int, int]]  # First and last offset.


class ShareFetchFrames:
    """Of one member."""

    def __init__(self, topic_id: bytes, group: str, member_id: str) -> None:
        header = pack(">hhih", 78, 2, 1, len(CLIENT_ID)) + CLIENT_ID.encode() + b"\0"
        self._front = header + _compact(group) + _compact(member_id)
        self._partition = b"\2" + topic_id + b"\2" + pack(">i", 0)

    def request(self, epoch: int, accepted: Ranges, *, records_max: int, wait_ms: int) -> bytes:
        body = self._front + _ASKED.pack(epoch, wait_ms, 1, 1 << 20, records_max, records_max, 0, 0)
        if accepted or not epoch:
            said = [_SPAN.pack(*each) + ACCEPT for each in accepted]
            body += self._partition + _uvarint(len(said) + 1) + b"".join(said) + b"\0\0"
        else:
            body += b"\1"
        body += b"\1\0"  # Nothing is forgotten.
        return pack(">i", len(body)) + body

    @staticmethod
    def acquired(reply: bytes) -> Ranges:
        """Raises UnexpectedReply on any error."""
        error = _CODE.unpack_from(reply, 9)[0]  # Behind the correlation id, the tagged fields and the throttle time.
        if error:
            raise UnexpectedReply(f"share fetch: error {error}")
        if reply[11] or reply[16] not in (1, 2):
            raise UnexpectedReply("share fetch: a reply that was not asked for")
        if reply[16] == 1:  # No topics at all.
            return []
        at = 17
        _, partitions, _, error = _ROW.unpack_from(reply, at)
        if partitions != 2 or error or reply[at + _ROW.size]:
            raise UnexpectedReply(f"share fetch: error {error} of the partition")
        at += _ROW.size + 1
        error = _CODE.unpack_from(reply, at)[0]
        if error:
            raise UnexpectedReply(f"share fetch: acknowledgements: error {error}")
        at += 2 + 1 + 9  # No message; a leader that is not told.
        size, at = _read_uvarint(reply, at)
        count, at = _read_uvarint(reply, at + size - 1)
        rows = [_ACQUIRED.unpack_from(reply, at + number * _ACQUIRED.size) for number in range(count - 1)]
        return [(first, last) for first, last, _, _ in rows]


def _compact(text: str) -> bytes:
    encoded = text.encode()
    return _uvarint(len(encoded) + 1) + encoded


def _uvarint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_uvarint(buffer: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = buffer[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
