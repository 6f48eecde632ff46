"""What all batches have in common: which entries may be in one, and an answer for each of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.http.sqs.errors import EMPTY_BATCH, IDS_NOT_DISTINCT, INVALID_BATCH_ID, TOO_MANY_ENTRIES, SqsError
from penstock.http.sqs.texts import are_batch_ids, is_batch_id

ENTRIES_MAX = 10


def check_entries(entries: Sequence[Mapping[str, Any]], kind: str) -> None:
    if not entries:
        raise SqsError(EMPTY_BATCH, f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise SqsError(TOO_MANY_ENTRIES, f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}.")
    ids = [entry["Id"] for entry in entries]
    if len(set(ids)) == len(ids) and are_batch_ids(ids):
        return
    seen = set()
    for entry_id in ids:
        if not is_batch_id(entry_id):
            raise SqsError(
                INVALID_BATCH_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.",
            )
        if entry_id in seen:
            raise SqsError(IDS_NOT_DISTINCT, f"Id {entry_id} repeated.")
        seen.add(entry_id)


class Failures:
    """Of the entries of a batch that is answered as a whole."""

    def __init__(self) -> None:
        self._failed: list[dict[str, Any]] = []

    def add(self, entry_id: str, error: SqsError) -> None:
        kind = error.kind
        self._failed.append({"Id": entry_id, "SenderFault": kind.is_senders_fault, "Code": kind.code, "Message": error.words})

    def beside(self, successful: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer. As AWS does, it has no list of failures where there are none."""
        return {"Successful": successful, "Failed": self._failed} if self._failed else {"Successful": successful}
