"""Share groups at the leaders of partitions (KIP-932): sessions, records lent to members, and what members say of them."""
