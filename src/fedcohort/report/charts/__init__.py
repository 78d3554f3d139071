"""Define every chart once: each function takes the runs and a :class:`~fedcohort.report.look.Look`, and returns figures."""
