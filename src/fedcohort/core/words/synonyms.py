"""Other words for the names in experiment files: those of papers and of other packages, to find them, and for error messages."""

import re
from collections.abc import Iterable

__all__ = ["ALSO_KNOWN_AS", "SYNONYMS", "all_meant", "meant"]

ALSO_KNOWN_AS: dict[str, tuple[str, ...]] = {
    # strategies
    "uniform": ("random selection", "random client sampling"),
    "all": ("full participation",),
    "ucb": ("UCB1", "upper confidence bound", "multi-armed bandit (MAB)"),
    "powd": ("Power-of-Choice", "pow-d", "PoC"),
    "cpowd": ("cpow-d", "computation-efficient Power-of-Choice"),
    "rpowd": ("rpow-d", "communication-efficient Power-of-Choice"),
    "select_by_loss": ("highest-loss selection", "loss-based selection"),
    "oort": ("Oort",),
    "pyramidfl": ("PyramidFL",),
    "afl": ("AFL", "Active Federated Learning", "Active FL"),
    "divfl": ("DivFL", "diverse client selection", "facility location"),
    "tifl": ("TiFL", "tier-based federated learning"),
    "haccs": ("HACCS", "heterogeneity-aware clustered client selection"),
    "gpfl_select": ("GPFL", "gradient-projection-based client selection"),
    "eiffel": ("Eiffel",),
    "cs_ucb": ("CS-UCB", "multi-armed bandit-based client scheduling"),
    "fedcs": ("FedCS",),
    "conformal": ("conformal prediction",),
    "flash": ("FLASH", "contextual bandit", "Thompson sampling"),
    "flash_printed": ("FLASH", "Thompson sampling"),
    "flash_linucb": ("LinUCB",),
    "restless": ("restless bandit",),
    "neural": ("NeuralUCB", "neural Thompson sampling (NeuralTS)"),
    "round_robin": ("round-robin scheduling", "cyclic selection"),
    "stratified": ("stratified sampling",),
    "cluster_survey": ("cluster sampling",),
    "md": ("MD sampling", "multinomial sampling"),
    "clustered_size": ("clustered sampling",),
    "clustered_similarity": ("clustered sampling",),
    "size": ("sampling proportional to size",),
    "ocs": ("OCS", "optimal client sampling"),
    "aocs": ("AOCS", "approximate optimal client sampling"),
    "rizk": ("importance sampling", "ISFedAvg"),
    "feel": ("FEEL", "importance- and channel-aware scheduling"),
    "fedcbs": ("Fed-CBS",),
    "loss_proportional": ("loss-proportional sampling",),
    "fedcor": ("FedCor",),
    # algorithms
    "fedavg": ("FedAvg", "federated averaging"),
    "fedsgd": ("FedSGD",),
    "fedavgm": ("FedAvgM", "server momentum"),
    "fedadam": ("FedAdam", "FedOpt"),
    "fedadagrad": ("FedAdagrad", "FedOpt"),
    "fedyogi": ("FedYogi", "FedOpt"),
    "fedprox": ("FedProx",),
    "scaffold": ("SCAFFOLD",),
    "fednova": ("FedNova", "normalized averaging"),
    "feddf": ("FedDF", "ensemble distillation"),
    "rhfl": ("RHFL",),
    "median": ("coordinate-wise median",),
    "trimmed_mean": ("coordinate-wise trimmed mean",),
    "krum": ("Krum", "Multi-Krum"),
}  # fmt: skip
"""What strategies and algorithms are called in the literature, by their names in experiment files."""

SYNONYMS: dict[str, tuple[str, ...]] = {
    # strategies
    "random": ("uniform",),
    "random_selection": ("uniform",),
    "random_sampling": ("uniform",),
    "uniform_random": ("uniform",),
    "full": ("all",),
    "full_participation": ("all",),
    "everyone": ("all",),
    "power_of_choice": ("powd",),
    "power_of_d": ("powd",),
    "pow_d": ("powd",),
    "poc": ("powd",),
    "cpow_d": ("cpowd",),
    "rpow_d": ("rpowd",),
    "highest_loss": ("select_by_loss",),
    "loss": ("training.loss", "select_by_loss", "ce"),
    "active": ("afl",),
    "active_fl": ("afl",),
    "active_federated_learning": ("afl",),
    "bandit": ("ucb",),
    "mab": ("ucb",),
    "upper_confidence_bound": ("ucb",),
    "multinomial": ("md",),
    "md_sampling": ("md",),
    "clustered_sampling": ("clustered_similarity", "clustered_size"),
    "optimal_client_sampling": ("ocs",),
    "gpfl": ("gpfl_select",),
    "fed_cbs": ("fedcbs",),
    "fed_cs": ("fedcs",),
    "cyclic": ("round_robin",),
    # algorithms
    "sgd": ("fedsgd",),
    "avg": ("fedavg",),
    "averaging": ("fedavg",),
    "federated_averaging": ("fedavg",),
    "fedmedian": ("median",),
    "coordinate_median": ("median",),
    "fedtrimmedavg": ("trimmed_mean",),
    "trimmed": ("trimmed_mean",),
    "multikrum": ("krum",),
    "multi_krum": ("krum",),
    "prox": ("fedprox",),
    "momentum": ("training.momentum", "fedavgm", "beta"),
    "adam": ("fedadam",),
    "adagrad": ("fedadagrad",),
    "yogi": ("fedyogi",),
    "distillation": ("feddf",),
    "centralized": ("centralised",),
    "central": ("centralised",),
    # partitions, models, losses, data sets, availability
    "dirichlet": ("dirichlet_class",),
    "lda": ("dirichlet_class",),
    "non_iid": ("dirichlet_class",),
    "noniid": ("dirichlet_class",),
    "pathological": ("shards",),
    "homogeneous": ("iid",),
    "by_writer": ("natural",),
    "logistic_regression": ("logistic",),
    "linear": ("logistic",),
    "softmax_regression": ("logistic",),
    "perceptron": ("mlp",),
    "resnet": ("resnet18",),
    "cross_entropy": ("ce",),
    "crossentropy": ("ce",),
    "cifar": ("cifar10",),
    "fashion": ("fashion_mnist",),
    "fmnist": ("fashion_mnist",),
    # settings
    "lr": ("lr", "training.lr"),
    "learning_rate": ("lr", "training.lr"),
    "client_lr": ("lr", "training.lr"),
    "eta": ("lr", "training.lr"),
    "server_learning_rate": ("server_lr", "algorithm.server_lr"),
    "mu": ("mu", "algorithm.mu"),
    "proximal_mu": ("mu", "algorithm.mu"),
    "k": ("k", "selection.k"),
    "clients_per_round": ("k", "selection.k"),
    "num_selected": ("k", "selection.k"),
    "cohort_size": ("k", "selection.k"),
    "participation": ("k", "selection.k"),
    "fraction_fit": ("k", "selection.k"),
    "num_clients": ("clients", "federation.clients", "k"),
    "n_clients": ("clients", "federation.clients"),
    "number_of_clients": ("clients", "federation.clients"),
    "clients": ("clients", "federation.clients"),
    "num_rounds": ("rounds",),
    "n_rounds": ("rounds",),
    "number_of_rounds": ("rounds",),
    "communication_rounds": ("rounds",),
    "comm_rounds": ("rounds",),
    "global_rounds": ("rounds",),
    "local_epochs": ("epochs", "training.epochs"),
    "num_epochs": ("epochs", "training.epochs"),
    "local_ep": ("epochs", "training.epochs"),
    "epochs": ("epochs", "training.epochs"),
    "batchsize": ("batch_size", "training.batch_size"),
    "batch": ("batch_size", "training.batch_size"),
    "local_bs": ("batch_size", "training.batch_size"),
    "bs": ("batch_size", "training.batch_size"),
    "batch_size": ("batch_size", "training.batch_size"),
    "optim": ("optimizer", "training.optimizer"),
    "optimiser": ("optimizer", "training.optimizer"),
    "optimizer": ("optimizer", "training.optimizer"),
    "wd": ("weight_decay", "training.weight_decay"),
    "l2": ("weight_decay", "training.weight_decay"),
    "scheduler": ("lr_schedule", "training.lr_schedule"),
    "gradient_clipping": ("clip_norm", "training.clip_norm"),
    "dataset": ("data",),
    "data_set": ("data",),
    "strategy": ("selection",),
    "selector": ("selection",),
    "sampler": ("selection",),
    "client_selection": ("selection",),
    "aggregation": ("algorithm",),
    "aggregator": ("algorithm",),
    "method": ("algorithm",),
    "network": ("model", "systems.network"),
    "net": ("model",),
    "architecture": ("model",),
    "partition": ("federation.partition",),
    "partitioner": ("federation.partition", "partition"),
    "alpha": ("federation.partition",),
    "label_noise": ("federation.label_noise",),
    "latency": ("systems.latency",),
    "availability": ("systems.availability",),
    "dropout": ("systems.dropout",),
    "deadline": ("systems.deadline",),
    "repetitions": ("seeds",),
    "repeats": ("seeds",),
    "num_seeds": ("seeds",),
    "random_seed": ("seed",),
    "target": ("target_accuracy", "measures.target_accuracy"),
    "gpu": ("device", "engine.device"),
    "device": ("device", "engine.device"),
    "num_workers": ("workers", "engine.workers"),
    "threads": ("workers", "engine.workers"),
    "intra_op_threads": ("threads_per_client", "engine.threads_per_client"),
    "num_threads": ("threads_per_client", "engine.threads_per_client"),
    "variant": ("variants",),
    "row": ("variants",),
    "rows": ("variants",),
    "strategies": ("variants",),
    "grid": ("sweep",),
    # settings by their own names, without the section
    "validation": ("data.validation",),
    "standardise": ("data.standardise",),
    "standardize": ("standardise", "data.standardise"),
    "numeric": ("data.numeric",),
    "label_column": ("data.label_column",),
    "client_column": ("data.client_column",),
    "feature_columns": ("data.feature_columns",),
    "holdout": ("federation.holdout",),
    "feature_shift": ("federation.feature_shift",),
    "overcommit": ("systems.overcommit",),
    "idle_time": ("systems.idle_time",),
    "weight_decay": ("training.weight_decay",),
    "lr_schedule": ("training.lr_schedule",),
    "clip_norm": ("training.clip_norm",),
    "precision": ("training.precision",),
    "augment": ("training.augment",),
    "server_lr": ("algorithm.server_lr",),
    "weights": ("algorithm.weights",),
    "k_steps": ("selection.k_steps",),
    "plan": ("engine.plan",),
    "workers": ("engine.workers",),
    "threads_per_client": ("engine.threads_per_client",),
    "target_accuracy": ("measures.target_accuracy",),
    "evaluate_every": ("measures.evaluate_every",),
    "clients_every": ("measures.clients_every",),
    "personal_epochs": ("measures.personal_epochs",),
    "patience": ("measures.patience",),
    "checkpoint_every": ("measures.checkpoint_every",),
}  # fmt: skip
"""Word → the names that it can stand for, best first. A dotted name is a setting of a section."""


def meant(word: str, valid: Iterable[str]) -> str | None:
    """The valid name that ``word`` is another spelling of or another word for; None if there is none.

    Case, hyphens and spaces do not count. A setting of a section is meant if the section is among the valid names.

    >>> meant("Power-of-Choice", ["powd", "uniform"])
    'powd'
    >>> meant("learning_rate", ["rounds", "training"])
    'training.lr'
    """
    return next(iter(all_meant(word, valid)), None)


def all_meant(word: str, valid: Iterable[str]) -> list[str]:
    """All valid names that ``word`` can stand for, best first.

    >>> all_meant("FedOpt", ["fedadam", "fedavg", "fedyogi"])
    ['fedadam', 'fedyogi']
    """
    names = list(valid)
    plain, letters = _plain(word), _letters(word)
    spelled = [name for name in names if _plain(name) == plain]
    known = [name for name in SYNONYMS.get(plain, ()) if name in names or name.rpartition(".")[0] in names]
    called = [
        name for name, others in ALSO_KNOWN_AS.items() if name in names and letters and letters in _words_of(others)
    ]
    return list(dict.fromkeys([*spelled, *known, *called]))


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def _letters(word: str) -> str:
    """The letters and digits of a word: ``ucb1`` for UCB-1."""
    return re.sub(r"[\W_]", "", word.lower())


def _words_of(names: Iterable[str]) -> set[str]:
    """Names from papers as they are looked up, those with an abbreviation in parentheses by both."""
    return {_letters(part) for name in names for part in (name, *re.split(r"[()]", name)) if part}
