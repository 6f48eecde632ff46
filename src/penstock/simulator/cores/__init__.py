"""Consensus cores alone, stepped by a plain heap: no event loop, no bytes on wires, so that very deep stories are cheap."""
