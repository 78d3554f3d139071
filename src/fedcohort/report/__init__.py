"""What people look at: charts, the report page, figures for papers, the live page.

``gather`` reads runs, ``charts`` defines every chart once, ``page`` puts them into one HTML file, ``export`` writes them for papers,
and ``live`` serves the page while runs go on.
"""
