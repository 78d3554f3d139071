"""Foundations of all other packages: arrays, errors, checked parameters, plug-in tables, saved states, named randomness, threads."""
