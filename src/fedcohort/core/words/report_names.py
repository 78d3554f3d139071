"""What questions to clients, and the numbers that clients report, are called in texts for readers."""

__all__ = [
    "EXCHANGES",
    "MEASURED_BY_ALL",
    "MEASURED_BY_SERVER",
    "NUMBER_OF_SAMPLES",
    "REPORTS",
    "TRAINING",
    "disclosed",
    "exchange_in_words",
    "is_random",
]

TRAINING = "its update and number of samples"
"""What clients disclose that train and are admitted."""

NUMBER_OF_SAMPLES = "its number of samples"
"""What clients disclose that train and are all declined."""

REPORTS = {
    "accuracy": "its accuracy on its own data",
    "calibration": "its number of held-out samples",
    "done": "whether it met the criterion",
    "epochs": "its number of local epochs",
    "held_out_loss": "its loss on held-out samples",
    "loss": "its mean training loss",
    "q_hat": "its conformal quantile",
    "samples": "how many samples it trained on",
    "set_size": "the mean number of classes in its prediction sets",
    "square_loss": "its mean squared training loss",
    "steps": "its number of local steps",
    "test_set_size": "the mean number of classes in its prediction sets on the server's test set",
    "training_loss": "its training loss",
    "update_norm": "the norm of its update",
}
"""The names of reports in the record, and what they are called."""

MEASURED_BY_ALL = frozenset({"accuracy", "epochs", "loss", "samples", "square_loss", "steps", "update", "update_norm"})
"""The names of reports that are measured for every client, or that the server computes: stopping rules use other names."""

MEASURED_BY_SERVER = "test_"
"""Prefix of reports that no client sends and no strategy sees: a simulation measures them on the server's test set."""


EXCHANGES = {
    "Context": "question about both losses",
    "GradientNorm": "question about gradient norms",
    "Histogram": "question about class counts",
    "LocalAccuracy": "question about local accuracy",
    "LocalLoss": "question about local loss",
    "LossChange": "question about the change of local loss",
    "Speed": "question about speed",
    "UpdateNorm": "question about update norms",
}
"""The names of questions in the record, and what these exchanges are called."""


def exchange_in_words(kind: str) -> str:
    """What an exchange is called in texts for readers; kinds of a user's own keep their names.

    >>> exchange_in_words("LocalLoss")
    'question about local loss'
    >>> exchange_in_words("training")
    'training'
    """
    return EXCHANGES.get(kind, kind)


def disclosed(text: str) -> list[str]:
    """The parts of what the record says that clients disclose, with names of reports in words.

    >>> disclosed("its update and number of samples, epochs, q_hat")
    ['its update and number of samples', 'its number of local epochs', 'its conformal quantile']
    >>> disclosed("its number of samples, q_hat")
    ['its number of samples', 'its conformal quantile']
    >>> disclosed("its number of samples of each class, once")
    ['its number of samples of each class, once']
    """
    if not text.startswith((TRAINING, f"{NUMBER_OF_SAMPLES}, ")):
        return [text] if text.strip() else []
    return [REPORTS.get(part.strip(), part.strip()) for part in text.split(",")]


def is_random(note: str) -> bool:
    """Whether the note of a decision says that clients were selected at random, whatever their scores.

    >>> is_random("random: first rounds"), is_random("highest UCB")
    (True, False)
    """
    return note.startswith("random")
