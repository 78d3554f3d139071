"""Every chart, defined once: a function takes what was gathered and a :class:`~fedcohort.report.look.Look` and gives figures."""
