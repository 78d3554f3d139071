"""Runs: what is handed over in Python, preparing, finding, playing, several at a time, and trackers."""
