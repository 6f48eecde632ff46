"""The other world: a virtual-time event loop, in-memory links and a disk that lies, all drawn from one seed.

A run is a function of its seed and nothing else: no real clock, no real chance, no thread, no socket, no file. The same node that
`server/` runs for real runs here unchanged, because both worlds give it the same `Env` and an asyncio event loop.
"""
