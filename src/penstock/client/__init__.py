"""A small Python face over the ecosystem's client library."""
