"""The nodes' own client: a small asyncio client of Kafka's protocol.

Nodes fetch from each other with it, the command line produces and consumes with it, and simulated workloads drive nodes with it.
It is never a public API: people use the clients of the Kafka ecosystem.

| file | what lives there |
|---|---|
| `client` | the face: single calls, each with a deadline |
| `producer` `batching` `partitioner` | records in, batches out, each partition in order and each record once |
| `transactions` `transaction_calls` | a producer whose records and input offsets count all together or not at all |
| `reader` `positions` `aborted` | partitions read from a start to an end, or for ever; with or without what was aborted |
| `consumer_member` | a member of a consumer group under the new protocol |
| `transaction_admin` `hanging_transactions` | transactions seen and ended from outside; those that nobody else will end |
| `administration` `groups` `offsets` `stable_offsets` `appending` `fetching` `fetch_session` | what the single calls say and hear |
| `routing` `coordinators` `topics` | whom to ask, and asking again; what is known of topics and their leaders |
| `switchboard` `connection` `versions` | addresses and open connections; one socket; which version of each API to speak with a peer |
| `patience` `failures` | deadlines and backoff; what can go wrong, in words for a person |

Rules: it runs unchanged in virtual time, so sockets come from the running loop, and clock and chance from a `ClientEnv`; nothing is
ordered by a set; every wait has an end. Not here: membership under the classic group protocol, TLS and SASL.
"""
