"""A name."""


class FieldInfo:
    """Never made."""
