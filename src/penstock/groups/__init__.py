"""Classic consumer groups and committed offsets: what is wanted (commands), recorded (image), may be forgotten (group), and is decided."""
