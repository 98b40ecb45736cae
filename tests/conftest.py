"""Settings of the whole test suite."""

from hypothesis import settings

# Times vary too much between machines to be a law.
settings.register_profile("pcsda", deadline=None)
settings.load_profile("pcsda")
