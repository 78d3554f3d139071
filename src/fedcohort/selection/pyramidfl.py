"""PyramidFL: Oort's choice, then every chosen client's own work: who teaches most uploads more, who is fast learns longer.

S_t is chosen as by Oort. Then, with tl_i the time client i computes for E epochs, tc_i the time it sends, and the gradient utility
g_i = ‖Δ_i‖₂·(samples trained on)/100 of its last participation (N_i before the first):

    rank_i   = position of g_i in S_t, the largest first, from 0;   drop_i = d_lo + rank_i·(d_hi − d_lo)/k
    time_i   = tl_i + (1 − drop_i)·tc_i;   D = max time_i over S_t
    ratio_i  = 1 + min(r_max, β·⌊(D − time_i)/(tl_i/E)⌋/E)
    epochs_i = min(⌊E·ratio_i⌋, max_epochs)
    upload   each trainable tensor of Δ_i is left out with probability drop_i

so that all finish about when the slowest does. Before a client was measured it counts with the times that it says itself; one of
which nothing is known does nominal work, and so does one that computes in no time.

A tensor is averaged over those who sent it (``left_out``, ours); the code averages zeros in its place (``unchanged``). The code
counts mini-batch steps where we count epochs, and allows 5 passes over the data, which would leave nothing to extend when E = 5; we
allow 5·E. Its settings of Oort's part: ``cut_off = 0.7, clip_quantile = 0.98, epsilon_decay = 0.95, round_threshold = 10``; the
defaults here are Oort's. It subtracts the global model from an update that is relative already; we take ‖Δ_i‖. Its native
aggregation weights are ``uniform``.

With ``importance_data`` clients draw as many samples an epoch as they have, with replacement, ∝ the loss at its beginning.

Li, Zeng, Zhang, Cao, "PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated Learning", MobiCom 2022 (only the
abstract was at hand); code liecn/PyramidFL, training/param_server.py and training/learner.py.
"""

import dataclasses
import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.cohort import Cohort, Why
from fedcohort.selection.inputs import Census, Outcome, Round
from fedcohort.selection.oort import Oort
from fedcohort.selection.questions import Speed

__all__ = ["PyramidFL"]


@parameters
class PyramidFL(Oort):
    """Oort's choice; then fast clients train longer, and clients that teach less upload less."""

    card: ClassVar[Card] = Card(
        source="Li et al. 2022 (MobiCom); code liecn/PyramidFL, training/param_server.py",
        status="code",
        asks="participants for the root mean square of their losses and the norm of their update (2 numbers with the update), "
        "and for more epochs; new clients for their speed, once",
        discloses="its squared training loss and the norm of its whole update; " + Speed.reveals,
        knows="N_i; times of computing and of sending",
        cost="O(m log m)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})

    dropout: bool = True
    """Leave out a part of the tensors of an update."""
    drop_low: Annotated[float, Ge(0), Le(1)] = 0.1
    """Probability with which a tensor of the client with the largest gradient utility is left out (d_lo)."""
    drop_high: Annotated[float, Ge(0), Le(1)] = 0.6
    """What the probability goes towards with the rank (d_hi)."""
    unsent: Literal["left_out", "unchanged"] = "left_out"
    """What a tensor that was not sent counts as in the average: nothing, or no change (the code)."""
    adaptive_epochs: bool = True
    """Let clients that would wait for the slowest train longer."""
    r_max: Annotated[float, Ge(0)] = 10.0
    """The most that is added to the ratio of epochs."""
    beta: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the spare time that is used (β); two of the four published configurations take 0.5."""
    importance_data: bool = False
    """Clients draw the samples of their batches ∝ their loss (the code has it, commented out); an epoch then takes a third longer."""
    max_epochs: Annotated[int, Ge(1)] | None = None
    """The most epochs of a client; none given means 5·E. Nobody does fewer than E."""

    def setup(self, census: Census) -> None:
        """The gradient utility is N_i as long as nothing is known."""
        super().setup(census)
        self.gradient = census.num_samples.astype(np.float64)

    def select(self, round: Round) -> Cohort:
        """Oort's cohort, with epochs and upload shares."""
        cohort = super().select(round)
        clients = cohort.clients
        drop = self._drop(round, clients) if self.dropout else np.zeros(len(clients))
        epochs = self._epochs(round, clients, drop) if self.adaptive_epochs else None
        own = {"gradient": self.gradient[clients], "drop": drop}
        own |= {} if epochs is None else {"epochs": epochs.astype(np.float64)}
        why = None if cohort.why is None else _with_terms(cohort.why, clients, own)
        return dataclasses.replace(
            cohort,
            epochs=epochs,
            share=1 - drop if self.dropout else None,
            unsent=self.unsent,
            sampling="loss" if self.importance_data else "shuffled",
            why=why,
        )

    def _drop(self, round: Round, clients: Indices) -> Values:
        """The larger the gradient utility, the more is sent; ties at random."""
        rank = np.empty(len(clients))
        order = round.top(self.gradient[clients], len(clients), among=np.arange(len(clients)))
        rank[order] = np.arange(len(clients))
        return self.drop_low + rank * (self.drop_high - self.drop_low) / max(len(clients), 1)

    def _epochs(self, round: Round, clients: Indices, drop: Values) -> Indices:
        """What fits into the time until the slowest is done."""
        nominal = self.census.epochs
        measured = np.stack([round.compute_times[clients], round.upload_times[clients]], axis=1)
        computing, sending = np.where(np.isfinite(measured), measured, self.said[clients]).T
        computing = computing * (4 / 3 if self.importance_data else 1)
        seconds = computing + (1 - drop) * sending
        known = np.isfinite(seconds)
        if not known.any():
            return np.full(len(clients), nominal)
        spare = np.where(known & (computing > 0), seconds[known].max() - seconds, 0.0)
        more = np.floor(spare / np.where(computing > 0, computing / nominal, 1.0) + 1e-9)
        ratio = 1 + np.minimum(self.r_max, self.beta * more / nominal)
        most = 5 * nominal if self.max_epochs is None else max(self.max_epochs, nominal)
        epochs: Indices = np.minimum(np.floor(nominal * ratio + 1e-9), most).astype(np.int64)
        return epochs

    def observe(self, outcome: Outcome) -> None:
        """As Oort; and keep the gradient utilities that came in."""
        super().observe(outcome)
        gradient = outcome.billed_report("update_norm") * outcome.billed_report("samples") / 100
        came = outcome.trained & np.isfinite(gradient)
        self.gradient[outcome.cohort.clients[came]] = gradient[came]


def _with_terms(why: Why, clients: Indices, terms: dict[str, Values]) -> Why:
    """``why`` with terms that only the chosen clients have."""
    position = np.searchsorted(why.candidates, clients)  # candidates ascend, and the chosen are among them
    wide = {}
    for name, values in terms.items():
        wide[name] = np.full(len(why.candidates), math.nan)
        wide[name][position] = values
    return dataclasses.replace(why, terms={**why.terms, **wide})
