"""Bytes to messages and back, pure: no clock, no socket, no disk.

| file | what it knows |
|---|---|
| `frames`, `api_keys` | the header in front of every request and reply |
| `schemas`, `schema_reader` | every message of Kafka's protocol, by the schemas of the library `kio` |
| `produce`, `fetch`, `list_offsets`, `metadata`, `api_versions` | the hot messages, written by hand |
| `batches` | the 61-byte header of a record batch, read and stamped in place; whole batches built and taken apart |
| `records` | the records inside a batch, checked by the compiled `_records` or its twin `_records_py` |
| `compression` | the four codecs, never past a bound |
| `varints`, `fields`, `record_layout`, `verdicts` | the small pieces that these share |

Every length is checked before it is believed. What does not parse raises `MalformedInput`, never anything else. Bytes after a request are
let go, as Kafka lets them go: librdkafka sends some.
"""
