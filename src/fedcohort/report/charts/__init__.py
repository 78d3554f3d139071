"""Define every chart once: each function takes the runs and a :class:`~fedcohort.report.chart_style.Look`, and returns figures."""
