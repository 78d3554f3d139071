"""The reliability campaign: attacks on the package that can be repeated.

``python -m tests.campaign`` runs them, and docs/reliability.md has their last figures. Each attack is described by one file; a small
seeded part of each is in the usual tests (test_attacks.py).
"""
