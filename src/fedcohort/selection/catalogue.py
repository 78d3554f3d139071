"""The names of strategies in experiment files, and the class that each name stands for."""

from fedcohort.core.plugins import Table

__all__ = ["STRATEGIES"]

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
"""The names of all strategies, and of those that installed packages add."""
