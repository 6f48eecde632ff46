"""The delivery ledger: which message of a queue is ready, who holds which one under a lease, and what is done."""
