"""The admin REST API under /api/v1.

| file | what lives there |
|---|---|
| `routes` | the table: every method and path, what it takes and answers, and the function behind it |
| `schemas` | the shapes of bodies, as JSON Schema, and the check that a value has its shape |
| `openapi` | the table as an OpenAPI document |
| `dispatch` | from a request to a function and back; refusals as answers |
| `guard` | what keeps a web page of somebody else from using this API through a visitor's browser |
| `topics` `configs` `groups` `lag` `offsets` `nodes` `quorum` `unwell` | the functions |

Rules: one table is served and documented, so the document cannot be wrong about it. What changes something goes the way that Kafka's own
APIs go. Lists are paged. Errors have the one shape of http/answers.py.
"""
