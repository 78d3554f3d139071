"""The Python interface: functions that run, compare and open experiments, and the runs and comparisons that they return."""

from fedcohort.api.results import Comparison, Race, Row, Run
from fedcohort.api.running import compare, open_run, race, run, run_seeds

__all__ = ["Comparison", "Race", "Row", "Run", "compare", "open_run", "race", "run", "run_seeds"]
