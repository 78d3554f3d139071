"""The names of strategies in experiment files, and the class that each name stands for."""

from fedcohort.core.plugins import Table

__all__ = ["STRATEGIES"]

STRATEGIES = Table(
    kind="strategy",
    group="fedcohort.strategies",
    base="fedcohort.selection:Selector",
    builtin={
        "uniform": "fedcohort.selection.strategies.uniform:Uniform",
        "all": "fedcohort.selection.strategies.all_available:All",
        "ucb": "fedcohort.selection.strategies.ucb:UCB",
        "powd": "fedcohort.selection.strategies.power_of_choice:PowerOfChoice",
        "cpowd": "fedcohort.selection.strategies.power_of_choice:ComputationPowerOfChoice",
        "rpowd": "fedcohort.selection.strategies.power_of_choice:CommunicationPowerOfChoice",
        "select_by_loss": "fedcohort.selection.strategies.select_by_loss:SelectByLoss",
        "utility_time": "fedcohort.selection.strategies.utility_time:UtilityTime",
        "oort": "fedcohort.selection.strategies.oort:Oort",
        "pyramidfl": "fedcohort.selection.strategies.pyramidfl:PyramidFL",
        "afl": "fedcohort.selection.strategies.active:ActiveFL",
        "divfl": "fedcohort.selection.strategies.divfl:DivFL",
        "tifl": "fedcohort.selection.strategies.tifl:TiFL",
        "haccs": "fedcohort.selection.strategies.haccs:HACCS",
        "gpfl_select": "fedcohort.selection.strategies.gpfl:GPFL",
        "eiffel": "fedcohort.selection.strategies.eiffel:Eiffel",
        "cs_ucb": "fedcohort.selection.strategies.cs_ucb:CSUCB",
        "fedcs": "fedcohort.selection.strategies.fedcs:FedCS",
        "conformal": "fedcohort.selection.strategies.conformal_participation:Conformal",
        "flash": "fedcohort.selection.strategies.flash:Flash",
        "flash_printed": "fedcohort.selection.strategies.flash:FlashPrinted",
        "flash_linucb": "fedcohort.selection.strategies.flash:FlashLinUCB",
        "restless": "fedcohort.selection.strategies.restless:Restless",
        "neural": "fedcohort.selection.strategies.neural:Neural",
        "round_robin": "fedcohort.selection.strategies.round_robin:RoundRobin",
        "stratified": "fedcohort.selection.strategies.stratified:Stratified",
        "cluster_survey": "fedcohort.selection.strategies.cluster_survey:ClusterSurvey",
        "md": "fedcohort.selection.strategies.md:MD",
        "clustered_size": "fedcohort.selection.strategies.clustered_size:ClusteredSize",
        "clustered_similarity": "fedcohort.selection.strategies.clustered_similarity:ClusteredSimilarity",
        "size": "fedcohort.selection.strategies.size:BySize",
        "ocs": "fedcohort.selection.strategies.ocs:OCS",
        "aocs": "fedcohort.selection.strategies.ocs:AOCS",
        "rizk": "fedcohort.selection.strategies.rizk:Rizk",
        "feel": "fedcohort.selection.strategies.feel:FEEL",
        "fedcbs": "fedcohort.selection.strategies.fedcbs:FedCBS",
        "loss_proportional": "fedcohort.selection.strategies.loss_proportional:LossProportional",
        "fedcor": "fedcohort.selection.strategies.fedcor:FedCor",
    },
)
"""The names of all strategies, and of those that installed packages add."""
