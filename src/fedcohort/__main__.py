"""Run the command line with ``python -m fedcohort``."""

from fedcohort.cli import main

main()
