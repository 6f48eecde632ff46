"""The nodes' own client: a small asyncio client of Kafka's protocol.

Nodes fetch from each other with it, the command line produces and consumes with it, and simulated workloads drive nodes with it.
It is never a public API: people use the clients of the Kafka ecosystem.

| file | what lives there |
|---|---|
| `connection` | one socket: frames, pipelining, time-outs |
| `versions` | which version of each API to speak with a peer |
| `switchboard` | which address each node answers at, and the open connections to it |
| `topics` | what is known of topics: ids, partitions, leaders |
| `client` | single calls with retries: topics, offsets, producer ids, produce, fetch |
| `fetching` | one fetch: wishes, answers, and the fetch session they are asked in |
| `producer` `batching` `partitioner` | records in, batches out, in order and once |
| `reader` | partitions read from a start to an end, or for ever |
| `patience` `failures` | deadlines and backoff; what can go wrong, in words for a person |

Rules: it runs unchanged in virtual time, so sockets come from the running loop and clock and chance from a `ClientEnv`; nothing is
ordered by a set; every wait has an end. Not here: group membership and transactions.
"""
