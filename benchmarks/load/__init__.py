"""A load generator that speaks raw Kafka frames: a process of its own, and never the limit.

Frames are encoded before the clock starts; while it runs there are only sends, receives and a look at each reply. Every reply is
checked, every figure comes with the generator's own CPU time, and the same bytes go to any broker that speaks the protocol.
"""
