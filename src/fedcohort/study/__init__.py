"""Evaluate runs: results, comparisons, summaries, explanations, participants, coverage of prediction sets, and device profiles."""
