"""Judge runs: comparisons, summaries, reasons, participants, coverage of prediction sets, and device profiles."""
