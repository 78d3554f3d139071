"""Settings for all tests."""

import os

from hypothesis import settings

os.environ.pop("COLUMNS", None)  # the tests' tables must not depend on the width of the terminal

settings.register_profile("no deadline", deadline=None)  # a slow machine must not make a test fail
settings.load_profile("no deadline")
