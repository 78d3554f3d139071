"""FedCS: as many clients as the deadline allows, the fastest first; the size of the cohort varies.

d random available clients are asked for the times that they expect to need, tl_i for computation and tc_i for communication. Starting
with an empty set and Θ = 0, the client with the smallest marginal time is added as long as Θ stays within the deadline:

    sequential  Θ ← Θ + tc_i + max(0, tl_i − Θ)    clients send one after another, and compute while others send (the paper)
    parallel    Θ ← max(Θ, tl_i + tc_i)            all clients send at the same time, as in the simulated clock

If no deadline is set, it is the median of tl_i + tc_i over the d clients (ours). If no client meets the deadline, the fastest client
takes part alone. If no client answers, k of the d clients are drawn uniformly. A client that does not answer is not added.

Nishio, Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge", ICC 2019, arXiv:1804.08333
(we did not have access to the text).
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector
from fedcohort.selection.strategy_inputs import Round

__all__ = ["FedCS"]


@parameters
class FedCS(Selector):
    """Of d candidates, as many as can finish by the deadline. Candidates are drawn at random."""

    card: ClassVar[Card] = Card(
        source="Nishio, Yonetani 2019, arXiv:1804.08333",
        status="ours",
        asks="d candidates for their speed, in every round",
        discloses=Speed.reveals,
        knows="the deadline",
        cost="O(m + d·|S_t|)",
    )
    variable_size: ClassVar[bool] = True

    deadline: Annotated[float, Gt(0)] | None = None
    """Simulated time within which the round should end; the median expected time of the candidates if not set."""
    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, and thus the largest possible cohort; k if not set."""
    uploads: Literal["sequential", "parallel"] = "parallel"
    """Order of uploads: sequential (one client after another), or parallel (all at the same time, as in the simulated clock)."""

    def select(self, round: Round) -> Cohort:
        """Ask the candidates, and add the fastest ones until the deadline."""
        candidates = round.sample(round.k if self.d is None else self.d)
        answers = round.ask(Speed(), candidates)
        known = np.logical_and(np.isfinite(answers), answers >= 0).all(axis=1, keepdims=True)
        computing, sending = np.where(known, answers, np.inf).T
        total = computing + sending
        terms = {"computing": computing, "sending": sending}
        if not known.any():
            why = Why(candidates, -total, terms, "random: no candidate reported its time")
            return Cohort(candidates[: round.k], why=why)
        deadline = float(np.median(total[np.isfinite(total)])) if self.deadline is None else self.deadline
        keys = round.rng.random(len(candidates))
        chosen = [int(np.lexsort((keys, total))[0])] if total.min() > deadline else []
        note = f"{{}} of {len(candidates)} candidates by the deadline {deadline:.6g}"
        if chosen:
            note = f"no client meets the deadline {deadline:.6g}: the fastest of {len(candidates)}, {{}}"
        elif self.uploads == "parallel":
            order = np.lexsort((keys, total))
            chosen = order[total[order] <= deadline].tolist()
        else:
            chosen = sequential_schedule(computing, sending, deadline, keys)
        why = Why(candidates, -total, terms, note.format(len(chosen)))
        return Cohort(candidates[chosen], why=why)


def sequential_schedule(computing: Values, sending: Values, deadline: float, keys: Values) -> list[int]:
    """Positions of the clients that fit into the deadline with sequential uploads, in the order in which they are added.

    Args:
        computing, sending: expected times of each client, [n]; ∞ if unknown.
        deadline: largest time Θ.
        keys: tie-breakers, [n]; of equal marginal times, the smaller key comes first.
    """
    chosen: list[int] = []
    elapsed, left = 0.0, np.ones(len(computing), dtype=bool)
    while left.any():
        marginal = np.where(left, sending + np.maximum(computing - elapsed, 0.0), np.inf)
        best = int(np.lexsort((keys, marginal))[0])
        if not elapsed + marginal[best] <= deadline:
            break
        elapsed += float(marginal[best])
        chosen.append(best)
        left[best] = False
    return chosen
