"""Print to the terminal: tables that hide columns if the terminal is narrow, and the progress of runs.

Modules are imported at the first use of one of their names: a list of data sets does not need PyTorch. No module has the name of what
this package exports, which it would hide.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names

if TYPE_CHECKING:
    from fedcohort.report.terminal.advices import advice
    from fedcohort.report.terminal.all_measures import summaries
    from fedcohort.report.terminal.batch_sizes import profile
    from fedcohort.report.terminal.cached_data import cache_table, cached_paths
    from fedcohort.report.terminal.catalogue import plug_in_list, plug_ins
    from fedcohort.report.terminal.comparisons import comparison, results
    from fedcohort.report.terminal.decisions import explanation
    from fedcohort.report.terminal.federations import federation_facts, known_data, partition, quantiles
    from fedcohort.report.terminal.layout import as_text, screen
    from fedcohort.report.terminal.measure_tables import measure_table
    from fedcohort.report.terminal.progress import watching
    from fedcohort.report.terminal.races import race
    from fedcohort.report.terminal.run_diagnoses import diagnoses, diagnosis

__all__ = [
    "advice", "as_text", "cache_table", "cached_paths", "comparison", "diagnoses", "diagnosis", "explanation", "federation_facts",
    "known_data", "measure_table", "partition",
    "plug_in_list", "plug_ins", "profile", "quantiles", "race", "results", "screen", "summaries", "watching",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "advice": "advices:advice",
        "as_text": "layout:as_text",
        "cache_table": "cached_data:cache_table",
        "cached_paths": "cached_data:cached_paths",
        "comparison": "comparisons:comparison",
        "diagnoses": "run_diagnoses:diagnoses",
        "diagnosis": "run_diagnoses:diagnosis",
        "explanation": "decisions:explanation",
        "federation_facts": "federations:federation_facts",
        "known_data": "federations:known_data",
        "measure_table": "measure_tables:measure_table",
        "partition": "federations:partition",
        "plug_in_list": "catalogue:plug_in_list",
        "plug_ins": "catalogue:plug_ins",
        "profile": "batch_sizes:profile",
        "quantiles": "federations:quantiles",
        "race": "races:race",
        "results": "comparisons:results",
        "screen": "layout:screen",
        "summaries": "all_measures:summaries",
        "watching": "progress:watching",
    },
)
