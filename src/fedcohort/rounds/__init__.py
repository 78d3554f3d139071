"""Rounds of federated training: their order, their cost, and what happened to each selected client."""

from fedcohort.rounds.round import play_round
from fedcohort.rounds.run_state import RunState

__all__ = ["RunState", "play_round"]
