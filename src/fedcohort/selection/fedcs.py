"""FedCS: as many clients as the deadline allows, the quickest to add first; the size of the cohort varies.

d random available clients are asked how long they will need, tl_i to compute and tc_i to send. Beginning with nobody and Θ = 0, the
client with the smallest marginal time is added as long as Θ stays within the deadline:

    sequential  Θ ← Θ + tc_i + max(0, tl_i − Θ)    one client sends after the other, and computes meanwhile (the paper)
    parallel    Θ ← max(Θ, tl_i + tc_i)            all send at once, as the simulated clock has it

Without a deadline it is the median of tl_i + tc_i over the d clients (ours). If nobody meets the deadline, the client that misses it
least takes part alone; if nobody says how long it needs, k of the d are drawn uniformly. A client that does not answer is not added.

Nishio, Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge", ICC 2019, arXiv:1804.08333
(the text was not at hand).
"""

from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from fedcohort.core.arrays import Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Round
from fedcohort.selection.questions import Speed
from fedcohort.selection.selector import Selector

__all__ = ["FedCS"]


@parameters
class FedCS(Selector):
    """Of d random candidates, as many as can be done by the deadline."""

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
    """Simulated time within which the round should end; none given means the median over the candidates."""
    d: Annotated[int, Ge(1)] | None = None
    """Number of candidates, and so the most that can take part; none given means k."""
    uploads: Literal["sequential", "parallel"] = "parallel"
    """Whether clients send one after the other, or all at once as the simulated clock has it."""

    def select(self, round: Round) -> Cohort:
        """Ask the candidates, add the quickest until the deadline."""
        candidates = round.sample(round.k if self.d is None else self.d)
        answers = round.ask(Speed(), candidates)
        known = np.logical_and(np.isfinite(answers), answers >= 0).all(axis=1, keepdims=True)
        computing, sending = np.where(known, answers, np.inf).T
        whole = computing + sending
        terms = {"computing": computing, "sending": sending}
        if not known.any():
            why = Why(candidates, -whole, terms, "random: nobody says how long it needs")
            return Cohort(candidates[: round.k], why=why)
        deadline = float(np.median(whole[np.isfinite(whole)])) if self.deadline is None else self.deadline
        keys = round.rng.random(len(candidates))
        chosen = [int(np.lexsort((keys, whole))[0])] if whole.min() > deadline else []
        note = f"{{}} of {len(candidates)} candidates by the deadline {deadline:.6g}"
        if chosen:
            note = f"nobody meets the deadline {deadline:.6g}: the quickest of {len(candidates)}, {{}}"
        elif self.uploads == "parallel":
            order = np.lexsort((keys, whole))
            chosen = order[whole[order] <= deadline].tolist()
        else:
            chosen = one_after_the_other(computing, sending, deadline, keys)
        why = Why(candidates, -whole, terms, note.format(len(chosen)))
        return Cohort(candidates[chosen], why=why)


def one_after_the_other(computing: Values, sending: Values, deadline: float, keys: Values) -> list[int]:
    """Positions in the order in which they are added; of equal marginal times the one with the smaller key."""
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
