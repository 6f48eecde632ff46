"""Work queues on this node: ledgers over companion partitions, what the leader of a queue's partition does, and the facade for the doors."""
