"""Measured results: one JSON file each, which a command writes and the pages show.

    python -m results NAME…       make these results anew (make results NAME=…)
    python -m results --check     list the results that are older than a change of what they depend on (make results-check)
    python -m results --list      list all results

``descriptions.py`` says how each result is made; a result file says what it depends on, and with what it was made.
"""
