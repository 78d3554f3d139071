"""Numbers, settings and names as text, and the synonyms of names."""
