"""How the nodes of a cluster talk to each other, on a listener of their own.

| file | what lives there |
|---|---|
| `kinds` | what can be said, and the lanes on which it travels |
| `frames` | bytes into frames and back, bounded |
| `handshake` | who is there: both sides prove the cluster's secret before anything else is read |
| `channel` | one proven connection, whichever side opened it: reading, writing, noticing that the other side is gone |
| `link` `links` | the side that calls: tells and asks, connecting again when it must |
| `door` | the side that is called: hands what comes to whoever takes it, and carries the answers back |
| `failures` | what can go wrong for the one who asks |
| `raft_messages` `replica_fetch` `calls` | bytes ⇄ what is said |

A node calls the others over links that it opened itself, and answers on those that the others opened: nothing but answers ever comes back
on a link. So two nodes have up to four connections, two lanes each way, and neither waits for the other to call.
Rules: it runs unchanged in virtual time; every queue, buffer and wait has a bound; the secret and the proofs are in no report.
Not here: what the messages mean, and when to send them.
"""
