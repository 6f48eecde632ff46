"""Stands in the way of the real one in processes that tests start: users have none, and kio takes 0.2 s to greet it where it is there."""

raise ModuleNotFoundError("a process that a test started is to be as it is for users: without hypothesis", name="hypothesis")
