"""One node: it takes requests apart, asks the rooms below, and answers in order."""
