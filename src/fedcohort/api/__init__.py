"""The Python interface: functions that run, compare and open experiments, and the runs and comparisons that they return."""

from fedcohort.api.results import Advice, Comparison, Race, Row, Run
from fedcohort.api.running import advise, compare, open_run, race, run, run_seeds

__all__ = ["Advice", "Comparison", "Race", "Row", "Run", "advise", "compare", "open_run", "race", "run", "run_seeds"]
