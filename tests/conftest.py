"""Hypothesis without deadlines: how long an example takes says something about the machine, not about the code."""

from hypothesis import settings

settings.register_profile("metaagent", parent=settings(), deadline=None)
settings.load_profile("metaagent")
