"""Load on queues, as a process of its own: `python -m benchmarks.queue_load KIND --port …`, its figures as one line of JSON.

| file | what lives there |
|---|---|
| `talk` | one connection that speaks HTTP, as plainly as can be |
| `calls` | the few requests of the SQS API that are needed, as bytes, and what must stand in their answers |
| `rates` | closed loops: how many messages a second are sent, received, deleted |
| `pace` | messages at a fixed rate, and how long each took from when it was due until a worker had it |
| `doors` | the doors through which messages are paced: the SQS API, the Python client, share groups |
| `shares` | members of a share group, as the protocol has them |
"""
