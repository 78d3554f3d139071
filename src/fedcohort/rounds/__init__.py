"""Rounds of federated training: their order, their cost, and what happened to each selected client."""

from fedcohort.rounds.game import Game
from fedcohort.rounds.round import play_round

__all__ = ["Game", "play_round"]
