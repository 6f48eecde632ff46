"""Raft for the metadata log: a machine without clock, disk or socket. Its door is `core.Core`; `nouns` says what its words mean."""
