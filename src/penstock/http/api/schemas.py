"""Shapes of JSON values: written as JSON Schema, so that the OpenAPI document prints the very thing that bodies are checked against.

Only the few words of JSON Schema that the API needs: type, properties, required, items, enum, minimum, maximum, additionalProperties, and
references to named shapes.
"""

from collections.abc import Collection, Mapping
from typing import Any

Schema = Mapping[str, Any]

_INT64_END = 1 << 63  # What offsets, times and sizes fit into. JSON itself knows no end, and longer numbers can be read than printed.
_REFERENCE = "#/components/schemas/"
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,), "array": (list,),
    "null": (type(None),),
}  # fmt: skip


def text(reason: str, **more: Any) -> Schema:
    return {"type": "string", "description": reason, **more}


def integer(reason: str, **more: Any) -> Schema:
    return {"type": "integer", "description": reason, **more}


def flag(reason: str, **more: Any) -> Schema:
    return {"type": "boolean", "description": reason, **more}


def listing(items: Schema, reason: str = "") -> Schema:
    return {"type": "array", "items": items} | ({"description": reason} if reason else {})


def texts_by_name(reason: str) -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": reason}


def shape(properties: Mapping[str, Schema], optional: Collection[str] = ()) -> Schema:
    """An object with these fields and no others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "additionalProperties": False} | ({"required": required} if required else {})


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def named(name: str) -> Schema:
    return {"$ref": _REFERENCE + name}


def fault_in(value: object, schema: Schema, names: Mapping[str, Schema], where: str = "the body") -> str | None:
    """What keeps the value from having the shape, as a sentence; None when it has it."""
    if "$ref" in schema:
        return fault_in(value, names[schema["$ref"].removeprefix(_REFERENCE)], names, where)
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        return f"{where} must be {' or '.join(map(_with_article, kinds))}"
    if value is not None and "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(schema['enum'])}"
    if isinstance(value, int) and not -_INT64_END <= value < _INT64_END:
        return f"{where} must fit into 64 bits"
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} must lie between {schema.get('minimum', 'any number')} and {schema.get('maximum', 'any number')}"
    if isinstance(value, list):
        faults = (fault_in(item, schema.get("items", {}), names, f"{where}[{place}]") for place, item in enumerate(value))
        return next((fault for fault in faults if fault), None)
    return _fault_in_fields(value, schema, names, where) if isinstance(value, dict) else None


def _fault_in_fields(value: dict[str, object], schema: Schema, names: Mapping[str, Schema], where: str) -> str | None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} needs {name!r}"
    for name, item in value.items():
        if name not in known and others is False:
            return f"{where} has no field {name!r}; it has {', '.join(known)}"
        rule = known.get(name, others if isinstance(others, dict) else {})
        if fault := fault_in(item, rule, names, name if where == "the body" else f"{where}.{name}"):
            return fault
    return None


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON_TYPES[kind])


def _with_article(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
