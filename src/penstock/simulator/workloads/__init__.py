"""What simulated clients do to a node, and what they write down of it.

| file | what lives there |
|---|---|
| `stage` | what all clients of a run share: the topics, the notebook, the bell that ends the play |
| `notebook` | the diary, and what a client saw that nobody may ever see |
| `values` | records that tell by themselves who wrote them, when, and under which key |
| `line` | a connection that believes nothing: order, shape and checksum of every reply are checked |
| `producing` | producers of `peers/`: batching, keyed, idempotent or not |
| `pipelining` | an idempotent producer by hand: five batches in flight, resent as they stand, and again after they were acknowledged |
| `reading` | readers of `peers/`: following, or from the start again and again |
| `fetching` | reads by hand, every byte compared with what was seen of it before |
| `asking` | where does the log begin and end, and which record is the first of its time |
| `keeping` | a compacted topic: few keys written over and over, and deleted |
| `joining` | members of a consumer group that come and go, doze, and commit what they have read |
| `consumer_groups` | members under the new group protocol that come, go and stall |
| `transactions` | workers that read, process and write in transactions, and their zombies |
| `echoes` | a client whose batches may be late |
| `transacting_members` | the same as members of one group, each with a transactional id of its own |
| `churning` | topics made, filled, deleted and made again |
"""
