"""Everything that shows runs: tables in the terminal, the report page, figures for papers, and the live page.

``gather`` reads runs. ``charts`` defines every chart once. ``page`` puts the charts into one HTML file, ``export`` writes them for
papers, and ``live`` serves the page while runs are still going on. ``terminal`` prints tables and progress.
"""
