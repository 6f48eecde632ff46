"""Hypothesis has no deadline here: a busy machine is not a wrong answer."""

from hypothesis import settings

settings.register_profile("queues", deadline=None)
settings.load_profile("queues")
