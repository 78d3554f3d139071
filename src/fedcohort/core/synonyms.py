"""Other words for the names in experiment files: those of papers and of other packages, for suggestions in error messages."""

from collections.abc import Iterable

__all__ = ["SYNONYMS", "meant"]

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
    "variant": ("variants",),
    "grid": ("sweep",),
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
    names = list(valid)
    plain = _plain(word)
    spelled = [name for name in names if _plain(name) == plain]
    known = [name for name in SYNONYMS.get(plain, ()) if name in names or name.rpartition(".")[0] in names]
    return next(iter([*spelled, *known]), None)


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")
