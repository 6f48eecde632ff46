"""Topics as frames: `spark.read.format("penstock")` and `spark.readStream.format("penstock")`.

Columns, options and offsets are those of Spark's Kafka source, so that a job moves by changing one word. New here are read_committed by
default, filters that reach the log, ranges that are split where partitions are skewed, progress that shows as a consumer group's, topics
told apart that were deleted and made again, and dead letters.

| file | what lives there |
|---|---|
| `schema` | the columns, and any part of them that a job asks for |
| `options` `bounds` | what a job may ask for; where to begin and to end |
| `offsets` | how far a stream has come, as it stands in the checkpoint |
| `subscription` `lookup` | which partitions, and what offsets they have; asked of brokers |
| `ranges` `admission` `filters` | what one task reads; how much one batch takes; what need not be read: all of it plain reckoning |
| `fetching` `reading` `arrow` | one range fetched, decoded in bulk, handed to Spark |
| `batch` `stream` `following` | the two readers that Spark calls; what a stream sees of topics that change |
| `loss` `dead_letters` `checking` | data that is gone; rows that are not what they should be |
| `progress` `news` | offsets committed to a group; waiting for something new |

Not here: anything that writes, except for dead letters and committed offsets.
"""
