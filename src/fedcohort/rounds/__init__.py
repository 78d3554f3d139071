"""A round of federated training: the loop, what it costs, and what became of each selected client."""

from fedcohort.rounds.round import Game, play_round

__all__ = ["Game", "play_round"]
