"""Tables of files: what the jobs `archive`, `snapshot` and `replay` write and read, and any frame by `format("penstock-lake")`.

| file | what lives there |
|---|---|
| `layout` | directories by partition column, names of files |
| `staging` `staging_frames` | rows → Parquet files, in the task that has them (phase one); a whole frame for a driver that commits itself |
| `table` | what a table can do, whatever its format |
| `parquet_table` `log` `view` | plain Parquet: a log of what counts, and the tree that every reader understands (phase two) |
| `delta_table` | the same as a Delta table, through `deltalake` (phase two) |
| `compaction` | which small files become one |
| `format` `sink` | the format "penstock-lake" as Spark sees it, and its two phases |
| `positions` `spool` `pacing` | which offsets an archive holds; any frame as an archive; rows per second |
| `reading` | an archive read back as a stream, in order per partition, at a bounded rate |

A write has two phases, as every exactly-once write has: tasks stage files that nobody reads, and the driver makes those of the winning
attempts count in one step that is keyed (query, batch). Only `format`, `sink`, `spool`, `staging_frames` and `reading` know Spark.
"""
