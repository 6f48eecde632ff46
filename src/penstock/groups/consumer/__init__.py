"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members heartbeat, and only partitions that move are given up."""
