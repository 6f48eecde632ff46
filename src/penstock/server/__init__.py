"""The real world: the process, its disk, its clock and its threads. Nothing below this room knows that it exists."""
