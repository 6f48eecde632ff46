"""Whole clusters in virtual time: from one seed the nodes, their settings, the topics, the clients and everything that goes wrong.

| file | what lives there |
|---|---|
| `menu` | what a seed chooses: nodes and roles, time-outs, topics with replicas, clients |
| `members` | the nodes as processes of a world, and what can be seen of them from outside |
| `stage` | what all clients of a run share, for a cluster |
| `replacing` | what an operator does after a disk is lost |
| `budget` | what the configuration is promised to bear, so that trouble never takes more |
| `faults` | kinds of trouble that need several nodes; `aiming` chooses whom it hurts most; `ambushes` lie in wait for a moment |
| `moves_menu` `wishes` `moves_reckoning` | which operators a seed has; what they asked for; whether it is so at the end |
| `moving` `growing` `machining` `voting` `machines` | operators who move and add partitions, add and forget nodes, change voters |
| `move_watching` | decisions about partitions, judged one by one |
| `watching` | what must hold at every moment, looked at from outside where all nodes can be seen at once |
| `replicas` | the logs as they lie on the nodes' disks, compared with each other |
| `recovering` | when everything is available again |
| `reckoning` | everything is read back through clients, and held against what the disks have |
| `run` | one seed, one story |
| `variants` `move_variants` | clusters that are broken on purpose |
| `pipelining` `joining` `watermarks` `keeping` `churning` `fetching` | clients by hand, as in `simulator/workloads`, that find their node |
"""
