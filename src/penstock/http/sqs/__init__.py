"""Door one: queues through the SQS API (AWS JSON 1.0), and a few more actions of the same protocol for Penstock's own clients."""
