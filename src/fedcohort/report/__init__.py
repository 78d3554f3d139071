"""Everything that shows runs: tables in the terminal, the report page, figures for papers, and the live page.

:mod:`~fedcohort.report.data` reads runs, and :mod:`~fedcohort.report.charts` defines every chart once. ``page`` puts the charts into
one HTML file, and :mod:`~fedcohort.report.live` serves it while runs are still going on. :mod:`~fedcohort.report.figures` writes the
charts for papers, :mod:`~fedcohort.report.tables` has the rows of tables, and :mod:`~fedcohort.report.terminal` prints them, and
progress. :mod:`~fedcohort.report.headline` says the result of a comparison in sentences, and :mod:`~fedcohort.report.notes` has the
sentences beside numbers.
"""
