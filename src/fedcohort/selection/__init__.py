"""Client selection strategies, one file each, and everything that the author of a strategy imports.

:data:`STRATEGIES` maps the name of each built-in strategy to its class. A plug-in takes :class:`Selector`, :class:`Cohort` and the
other names below from this package; they are imported at first use, so that ``import fedcohort.selection`` stays light.
"""

from typing import TYPE_CHECKING

from fedcohort.core.lazy import lazy_names
from fedcohort.core.plugins import Card, Table

if TYPE_CHECKING:
    from fedcohort.core.arrays import Indices, Values
    from fedcohort.core.parameters import parameters
    from fedcohort.selection.cohort import Cohort, Why
    from fedcohort.selection.draws import successive
    from fedcohort.selection.inputs import Census, Outcome, Reported, Round
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
    from fedcohort.selection.selector import Selector, choose

__all__ = [
    "QUESTIONS", "STRATEGIES", "Card", "Census", "Cohort", "Context", "GradientNorm", "Indices", "LocalAccuracy", "LocalLoss",
    "LossChange", "Outcome", "Question", "Reported", "Round", "Selector", "Speed", "UpdateNorm", "Values", "Why", "best", "choose",
    "parameters", "rank_losses", "successive", "top",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "QUESTIONS": "questions:QUESTIONS",
        "Census": "inputs:Census",
        "Cohort": "cohort:Cohort",
        "Context": "questions:Context",
        "GradientNorm": "questions:GradientNorm",
        "Indices": "fedcohort.core.arrays:Indices",
        "LocalAccuracy": "questions:LocalAccuracy",
        "LocalLoss": "questions:LocalLoss",
        "LossChange": "questions:LossChange",
        "Outcome": "inputs:Outcome",
        "Question": "questions:Question",
        "Reported": "inputs:Reported",
        "Round": "inputs:Round",
        "Selector": "selector:Selector",
        "Speed": "questions:Speed",
        "UpdateNorm": "questions:UpdateNorm",
        "Values": "fedcohort.core.arrays:Values",
        "Why": "cohort:Why",
        "best": "ranking:best",
        "choose": "selector:choose",
        "parameters": "fedcohort.core.parameters:parameters",
        "rank_losses": "ranking:rank_losses",
        "successive": "draws:successive",
        "top": "ranking:top",
    },
)

STRATEGIES = Table(
    kind="strategy",
    group="fedcohort.strategies",
    base="fedcohort.selection:Selector",
    builtin={
        "uniform": "fedcohort.selection.uniform:Uniform",
        "all": "fedcohort.selection.all_available:All",
        "ucb": "fedcohort.selection.ucb:UCB",
        "powd": "fedcohort.selection.power_of_choice:PowerOfChoice",
        "cpowd": "fedcohort.selection.power_of_choice:ComputationPowerOfChoice",
        "rpowd": "fedcohort.selection.power_of_choice:CommunicationPowerOfChoice",
        "select_by_loss": "fedcohort.selection.select_by_loss:SelectByLoss",
        "utility_time": "fedcohort.selection.utility_time:UtilityTime",
        "oort": "fedcohort.selection.oort:Oort",
        "pyramidfl": "fedcohort.selection.pyramidfl:PyramidFL",
        "afl": "fedcohort.selection.active:ActiveFL",
        "divfl": "fedcohort.selection.divfl:DivFL",
        "tifl": "fedcohort.selection.tifl:TiFL",
        "haccs": "fedcohort.selection.haccs:HACCS",
        "gpfl_select": "fedcohort.selection.gpfl:GPFL",
        "eiffel": "fedcohort.selection.eiffel:Eiffel",
        "cs_ucb": "fedcohort.selection.cs_ucb:CSUCB",
        "fedcs": "fedcohort.selection.fedcs:FedCS",
        "conformal": "fedcohort.selection.conformal_participation:Conformal",
        "flash": "fedcohort.selection.flash:Flash",
        "flash_printed": "fedcohort.selection.flash:FlashPrinted",
        "flash_linucb": "fedcohort.selection.flash:FlashLinUCB",
        "restless": "fedcohort.selection.restless:Restless",
        "neural": "fedcohort.selection.neural:Neural",
        "round_robin": "fedcohort.selection.round_robin:RoundRobin",
        "stratified": "fedcohort.selection.stratified:Stratified",
        "cluster_survey": "fedcohort.selection.cluster_survey:ClusterSurvey",
        "md": "fedcohort.selection.md:MD",
        "clustered_size": "fedcohort.selection.clustered_size:ClusteredSize",
        "clustered_similarity": "fedcohort.selection.clustered_similarity:ClusteredSimilarity",
        "size": "fedcohort.selection.size:BySize",
        "ocs": "fedcohort.selection.ocs:OCS",
        "aocs": "fedcohort.selection.ocs:AOCS",
        "rizk": "fedcohort.selection.rizk:Rizk",
        "feel": "fedcohort.selection.feel:FEEL",
        "fedcbs": "fedcohort.selection.fedcbs:FedCBS",
        "loss_proportional": "fedcohort.selection.loss_proportional:LossProportional",
        "fedcor": "fedcohort.selection.fedcor:FedCor",
    },
)
