"""Draw figures without what takes most of the time of a page and leaves it the same."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quick_drawing"]


@contextmanager
def quick_drawing() -> Iterator[None]:
    """Neither check charts against the schema, nor let Arrow hold texts.

    The tests check every chart, so that readers need not wait for it. Where Arrow is installed, pandas hands it all texts, such as the
    names of columns, which makes a page a quarter slower: a report has many tables of few rows.
    """
    import pandas as pd
    from altair.utils.schemapi import debug_mode

    with pd.option_context("mode.string_storage", "python"), debug_mode(False):
        yield
