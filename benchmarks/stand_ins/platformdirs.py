"""A cache folder among the temporary files; see README.md."""

import tempfile


def user_cache_dir(name: str, *_: object, **__: object) -> str:
    """The folder."""
    return f"{tempfile.gettempdir()}/{name}"
