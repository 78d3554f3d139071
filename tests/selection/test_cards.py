"""Cards of strategies name every number that clients send with their updates, as the record of a run bills them."""

from pathlib import Path

import pytest

import fedcohort
from fedcohort.core.words.report_names import TRAINING
from fedcohort.selection.catalogue import STRATEGIES
from tests.experiments import small

WORDS = {
    "calibration": "number of held-out samples",
    "done": "whether it met the criterion",
    "epochs": "epochs used",
    "loss": "training loss",
    "q_hat": "its quantile",
    "samples": "how many samples it trained on",
    "set_size": "size of its prediction sets",
    "square_loss": "squared training loss",
    "steps": "number of local steps",
    "update_norm": "the norm of its",
}
"""What cards say for reports."""


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_the_card_names_the_reports_that_the_record_bills(name: str, tmp_path: Path) -> None:
    experiment = small(rounds=2, federation={"clients": 8, "holdout": 0.3}, selection={"name": name})
    run = fedcohort.run(experiment, runs=tmp_path)
    training = run.ledger.loc[run.ledger["kind"] == "training", "discloses"].iloc[-1]
    _, *reports = training.split(", ")
    assert training.startswith(TRAINING)
    disclosed = STRATEGIES.find(name, "name").card.discloses
    missing = [report for report in reports if WORDS.get(report, report) not in disclosed]
    assert not missing, f"{name}: the card says {disclosed!r}, and clients send {missing}"


@pytest.mark.parametrize("name", STRATEGIES.builtin)
def test_the_card_says_selected_as_the_glossary_does(name: str) -> None:
    """Cards called the clients of a round participants, which elsewhere are those whose updates were admitted."""
    card = STRATEGIES.find(name, "name").card
    assert "participant" not in f"{card.asks} {card.discloses} {card.knows} {card.score}"
