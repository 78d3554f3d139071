"""What holds for all tests."""

import os

from hypothesis import settings

os.environ.pop(
    "COLUMNS", None
)  # terminals, and runners of tests, say how wide they are; tables should not depend on it

settings.register_profile("any machine", deadline=None)  # a busy machine is no failure
settings.load_profile("any machine")
