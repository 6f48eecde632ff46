"""Frames written to topics, exactly once: Kafka's transactions, and a ledger that says which of them count.

| file | what lives there |
|---|---|
| `writer` | the sink as Spark sees it |
| `options` `schema` | what may be asked for, and what a frame must have |
| `rows` | Arrow batches cut into rows of one partition each |
| `tasks` | one task, start to end, and the driver's half, behind a blocking door |
| `staging` | a task's rows in a transaction that is left open |
| `committing` | the driver's half: commit and abort |
| `runs` | whether a batch is to be written, and who may write |
| `ledger` `entries` | the compacted topic of commits: its records, its reading, the right to append |
| `ending` `fate` | transactions seen, ended and judged from outside |
| `names` `steps` `failures` | transactional ids; the protocol's steps; what is raised |

How the pieces make a batch count once is told in docs/decisions, "The sink's protocol".
"""
