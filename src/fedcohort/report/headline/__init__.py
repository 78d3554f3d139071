"""The result of a comparison in sentences."""
