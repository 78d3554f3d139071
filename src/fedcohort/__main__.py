"""``python -m fedcohort``."""

from fedcohort.cli import main

main()
