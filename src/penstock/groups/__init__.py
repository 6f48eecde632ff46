"""Classic consumer groups and committed offsets: what was decided (records), what holds now (image), and what may be forgotten (membership)."""
