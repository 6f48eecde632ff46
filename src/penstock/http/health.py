"""GET /health and GET /ready.

/health: the process answers, so its loop turns; 200 even while it recovers. A supervisor restarts a node that fails this.
/ready: the node has recovered, listens for Kafka clients, and has room on its disk for what they send; otherwise 503 with the reason. A
load balancer waits for this. Readers are served all the same while only room is missing.
"""

from penstock.broker.node import Health
from penstock.http.answers import OK, UNAVAILABLE, Answer


def health() -> Answer:
    return Answer(OK, {"status": "alive"})


def ready(state: Health) -> Answer:
    if state.is_ready:
        return Answer(OK, {"status": "ready"})
    return Answer(UNAVAILABLE, {"status": "not ready", "reason": state.reason}, {"Retry-After": "1"})
