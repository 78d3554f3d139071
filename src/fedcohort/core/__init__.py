"""What every other package builds on: arrays, errors, checked parameters, plug-in tables, saved states, named randomness, threads."""
