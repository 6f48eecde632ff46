"""Values that are not what every value should be (`valueFormat`): found here, so that they can be set aside with the reason.

UTF-8 is checked for a whole batch at once, and row by row only where that fails. JSON costs a look at every value in Python: some half a
million rows a second and core, so that it is worth its price only where bad values do come and must not reach the frame.
A value that is null is fine: it says that a key is deleted.
"""

import json
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from penstock.pipeline.source.arrow import binary, headers
from penstock.pipeline.source.dead_letters import Letter
from penstock.pipeline.source.options import ValueFormat
from penstock.pipeline.source.schema import HEADERS_TYPE
from penstock.vocabulary import TopicPartition
from penstock.wire.columns import Columns


def faults(values: pa.Array, wanted: ValueFormat) -> dict[int, str]:
    """By row, what is wrong with it. Nothing where all is well."""
    if wanted is ValueFormat.ANY or _is_text(values):
        found: dict[int, str] = {}
    else:
        found = {row: why for row, value in enumerate(values.to_pylist()) if (why := _fault_in_text(value)) is not None}
    if wanted is ValueFormat.JSON:
        found |= {row: why for row, value in enumerate(values.to_pylist()) if row not in found and (why := _fault_in_json(value))}
    return found


def letters_of(where: TopicPartition, columns: Columns, found: Mapping[int, str]) -> list[Letter]:
    """The rows with a fault as dead letters. All columns must have been read."""
    assert columns.offsets is not None and columns.timestamps is not None, "a column is missing"
    keys, values = (binary(column, columns.rows, pa.binary()) for column in (columns.key, columns.value))
    named = headers(columns.headers, columns.rows, to_arrow_type(HEADERS_TYPE))
    offsets, times = (memoryview(numbers).cast("B").cast("q") for numbers in (columns.offsets, columns.timestamps))
    letters = []
    for row, why in found.items():
        pairs = tuple((pair["key"], pair["value"]) for pair in named[row].as_py() or ())
        key, value = keys[row].as_py(), values[row].as_py()
        letters.append(Letter(where, offsets[row], why, key, value, pairs, timestamp_ms=times[row] // 1_000))
    return letters


def _is_text(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _fault_in_text(value: bytes | None) -> str | None:
    try:
        if value is not None:
            value.decode()
    except UnicodeDecodeError as wrong:
        return f"the value is not UTF-8: {wrong.reason} at byte {wrong.start}"
    return None


def _fault_in_json(value: bytes | None) -> str | None:
    try:
        if value is not None:
            json.loads(value)
    except ValueError as wrong:
        return f"the value is not JSON: {wrong}"
    except RecursionError:
        return "the value is not JSON that can be read: it is nested too deeply"
    return None
