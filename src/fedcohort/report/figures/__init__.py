"""What a figure is, how it looks, and how figures for papers are written; :mod:`fedcohort.report.charts` makes the charts."""
