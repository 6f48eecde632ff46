"""Share groups (KIP-932): who belongs to one, and who fetches from which partitions."""
