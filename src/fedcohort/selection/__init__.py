"""Client selection strategies, one file each, and everything that the author of a strategy imports.

Write a strategy of your own with the names of this package: extend :class:`Selector`, return a :class:`Cohort`, and make the class a
``@parameters`` class. :data:`STRATEGIES` lists the names of the built-in strategies in experiment files; their classes, such as
:class:`UCB`, are in this package, too. Modules are imported at the first use of one of their names.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.core.plugins import Card
from fedcohort.selection.catalogue import STRATEGIES

if TYPE_CHECKING:
    from fedcohort.core.arrays import Indices, Values
    from fedcohort.core.parameters import parameters
    from fedcohort.selection.cohort import Cohort, Why
    from fedcohort.selection.cohort_checks import choose
    from fedcohort.selection.draws import successive
    from fedcohort.selection.questions import (
        QUESTIONS,
        Context,
        GradientNorm,
        LocalAccuracy,
        LocalLoss,
        LossChange,
        Question,
        Speed,
        UpdateNorm,
    )
    from fedcohort.selection.ranking import best, rank_losses, top
    from fedcohort.selection.selector import Selector
    from fedcohort.selection.stopping_rule import Progress, StoppingRule
    from fedcohort.selection.strategies.active import ActiveFL
    from fedcohort.selection.strategies.all_available import All
    from fedcohort.selection.strategies.cluster_survey import ClusterSurvey
    from fedcohort.selection.strategies.clustered_similarity import ClusteredSimilarity
    from fedcohort.selection.strategies.clustered_size import ClusteredSize
    from fedcohort.selection.strategies.conformal_participation import Conformal
    from fedcohort.selection.strategies.cs_ucb import CSUCB
    from fedcohort.selection.strategies.divfl import DivFL
    from fedcohort.selection.strategies.eiffel import Eiffel
    from fedcohort.selection.strategies.fedcbs import FedCBS
    from fedcohort.selection.strategies.fedcor import FedCor
    from fedcohort.selection.strategies.fedcs import FedCS
    from fedcohort.selection.strategies.feel import FEEL
    from fedcohort.selection.strategies.flash import Flash, FlashLinUCB, FlashPrinted
    from fedcohort.selection.strategies.gpfl import GPFL
    from fedcohort.selection.strategies.haccs import HACCS
    from fedcohort.selection.strategies.loss_proportional import LossProportional
    from fedcohort.selection.strategies.md import MD
    from fedcohort.selection.strategies.neural import Neural
    from fedcohort.selection.strategies.ocs import AOCS, OCS
    from fedcohort.selection.strategies.oort import Oort
    from fedcohort.selection.strategies.power_of_choice import (
        CommunicationPowerOfChoice,
        ComputationPowerOfChoice,
        PowerOfChoice,
    )
    from fedcohort.selection.strategies.pyramidfl import PyramidFL
    from fedcohort.selection.strategies.restless import Restless
    from fedcohort.selection.strategies.rizk import Rizk
    from fedcohort.selection.strategies.round_robin import RoundRobin
    from fedcohort.selection.strategies.select_by_loss import SelectByLoss
    from fedcohort.selection.strategies.size import BySize
    from fedcohort.selection.strategies.stratified import Stratified
    from fedcohort.selection.strategies.tifl import TiFL
    from fedcohort.selection.strategies.ucb import UCB
    from fedcohort.selection.strategies.uniform import Uniform
    from fedcohort.selection.strategies.utility_time import UtilityTime
    from fedcohort.selection.strategy_inputs import Census, Outcome, Reported, Round

__all__ = [
    "AOCS", "CSUCB", "FEEL", "GPFL", "HACCS", "MD", "OCS", "QUESTIONS", "STRATEGIES", "UCB", "ActiveFL", "All",
    "BySize", "Card", "Census", "ClusterSurvey", "ClusteredSimilarity", "ClusteredSize", "Cohort",
    "CommunicationPowerOfChoice", "ComputationPowerOfChoice", "Conformal", "Context", "DivFL", "Eiffel", "FedCBS",
    "FedCS", "FedCor", "Flash", "FlashLinUCB", "FlashPrinted", "GradientNorm", "Indices", "LocalAccuracy",
    "LocalLoss", "LossChange", "LossProportional", "Neural", "Oort", "Outcome", "PowerOfChoice", "Progress",
    "PyramidFL", "Question", "Reported", "Restless", "Rizk", "Round", "RoundRobin", "SelectByLoss", "Selector",
    "Speed", "StoppingRule", "Stratified", "TiFL", "Uniform", "UpdateNorm", "UtilityTime", "Values", "Why", "best",
    "choose", "parameters", "rank_losses", "successive", "top",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "QUESTIONS": "questions:QUESTIONS",
        "Census": "strategy_inputs:Census",
        "Cohort": "cohort:Cohort",
        "Context": "questions:Context",
        "GradientNorm": "questions:GradientNorm",
        "Indices": "fedcohort.core.arrays:Indices",
        "LocalAccuracy": "questions:LocalAccuracy",
        "LocalLoss": "questions:LocalLoss",
        "LossChange": "questions:LossChange",
        "Outcome": "strategy_inputs:Outcome",
        "Progress": "stopping_rule:Progress",
        "Question": "questions:Question",
        "Reported": "strategy_inputs:Reported",
        "Round": "strategy_inputs:Round",
        "Selector": "selector:Selector",
        "Speed": "questions:Speed",
        "StoppingRule": "stopping_rule:StoppingRule",
        "UpdateNorm": "questions:UpdateNorm",
        "Values": "fedcohort.core.arrays:Values",
        "Why": "cohort:Why",
        "best": "ranking:best",
        "choose": "cohort_checks:choose",
        "parameters": "fedcohort.core.parameters:parameters",
        "rank_losses": "ranking:rank_losses",
        "successive": "draws:successive",
        "top": "ranking:top",
        **STRATEGIES.locations_by_class(),
    },
)
