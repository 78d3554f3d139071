"""A folder for files that may be lost; see README.md."""

import tempfile


def user_cache_dir(name: str, *_: object, **__: object) -> str:
    """Among the temporary files."""
    return f"{tempfile.gettempdir()}/{name}"
