"""Files: paths, writing that survives a power loss, saved states, and the user's cache."""
