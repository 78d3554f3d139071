"""Measures of runs: accuracy, fairness of selection, cost of a target, regret, stability, and confidence intervals over seeds.

All are functions of arrays. Rounds are counted from 1: the first entry of a series belongs to round 1. NaN in a series of accuracies
marks a round without evaluation, which is skipped.
"""

from fedcohort.measures.accuracy import (
    AccuracyOverClients,
    EarlyStop,
    accuracy,
    best_accuracy,
    early_stop,
    final_accuracy,
    macro_accuracy,
    mean_over_classes,
    over_clients,
    overall_accuracy,
    worst_accuracy,
)
from fedcohort.measures.available_chance import UniformChance, uniform_chance
from fedcohort.measures.cost import best_batch_size, bytes_to, rounds_to, time_to
from fedcohort.measures.participation import (
    Participation,
    coverage,
    entropy,
    gini,
    jain,
    participation,
    rounds_since,
    selection_counts,
)
from fedcohort.measures.regret import hindsight_regret, regret
from fedcohort.measures.seeds import (
    ACCURACY_DIFFERENCES,
    PairedInterval,
    holm,
    is_cut,
    mean_sd,
    paired_interval,
    paired_p_value,
)
from fedcohort.measures.stability import forgetting, largest_drop, tail_sd
from fedcohort.measures.uniform_chance import JainReference, binomial, jain_random, participation_random

__all__ = [
    "ACCURACY_DIFFERENCES", "AccuracyOverClients", "EarlyStop", "JainReference", "PairedInterval", "Participation",
    "UniformChance", "accuracy", "best_accuracy", "best_batch_size", "binomial", "bytes_to", "coverage", "early_stop", "entropy",
    "final_accuracy", "forgetting", "gini", "hindsight_regret", "holm", "is_cut", "jain", "jain_random", "largest_drop",
    "macro_accuracy", "mean_over_classes", "mean_sd", "over_clients", "overall_accuracy", "paired_interval", "paired_p_value",
    "participation", "participation_random", "regret", "rounds_since", "rounds_to", "selection_counts", "tail_sd", "time_to",
    "uniform_chance", "worst_accuracy",
]  # fmt: skip
