"""Foreign clients and tools against a real node: `make conformance`.

Each player is a client that Penstock's own suite does not install: it is fetched into .cache/conformance from the machine's package
registries, meets a node of its own (`penstock serve` with the settings that it ships with), and plays every feature that it has.
The closing table says what each of them made of it; docs/reference/clients.md keeps one run.

Not here: the clients that `make test` plays already (tests/compatibility/, tests/system/).
"""
