"""Work queues on a node: ledgers over companion partitions, what the leader of a queue does, and the facade for the doors."""
