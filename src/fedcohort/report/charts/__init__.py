"""Define every chart once: each function takes the runs and a look (:mod:`fedcohort.report.figures.chart_style`), and returns
figures."""
