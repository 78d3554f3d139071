"""Print to the terminal: tables that hide columns if the terminal is narrow, and the progress of runs."""

from fedcohort.report.terminal.advices import advice
from fedcohort.report.terminal.all_measures import summaries
from fedcohort.report.terminal.batch_sizes import profile
from fedcohort.report.terminal.catalogue import plug_in_list, plug_ins
from fedcohort.report.terminal.comparisons import comparison, results
from fedcohort.report.terminal.decisions import explanation
from fedcohort.report.terminal.diagnoses import diagnoses, diagnosis
from fedcohort.report.terminal.federations import cache_table, federation_facts, known_data, partition, quantiles
from fedcohort.report.terminal.layout import as_text, screen
from fedcohort.report.terminal.progress import watching
from fedcohort.report.terminal.races import race

__all__ = [
    "advice", "as_text", "cache_table", "comparison", "diagnoses", "diagnosis", "explanation", "federation_facts", "known_data",
    "partition",
    "plug_in_list", "plug_ins", "profile", "quantiles", "race", "results", "screen", "summaries", "watching",
]  # fmt: skip
