"""PyramidFL: Oort's cohort, in which clients with large gradients upload more, and fast clients train for more epochs.

S_t is chosen as by Oort. Let tl_i be the time in which client i computes E epochs, tc_i the time of its upload, and
g_i = ‖Δ_i‖₂·(samples trained on)/100 the gradient utility of its last participation (N_i before the first). Then

    rank_i   = position of g_i in S_t, the largest first, from 0;   drop_i = d_lo + rank_i·(d_hi − d_lo)/k
    time_i   = tl_i + (1 − drop_i)·tc_i;   D = max time_i over S_t
    ratio_i  = 1 + min(r_max, β·⌊(D − time_i)/(tl_i/E)⌋/E)
    epochs_i = min(⌊E·ratio_i⌋, max_epochs)
    upload   each trainable tensor of Δ_i is left out with probability drop_i

so that all clients finish at about the same time as the slowest. Before a client was measured, the times that it states are used;
clients are asked from round 2 on. If only the whole time T_i of a client is known, tl_i = 0.8·T_i and tc_i = 0.2·T_i. A client without
known times does E epochs, and so does a client with a computing time of 0.

A tensor is averaged over the clients that sent it (``left_out``, ours); the code averages zeros in its place (``unchanged``). The code
counts mini-batch steps instead of epochs, and allows 5 passes over the data, which would leave no room for more if E = 5; we allow
5·E epochs. The code's settings of Oort are ``cut_off = 0.7, clip_quantile = 0.98, epsilon_decay = 0.95, round_threshold = 10``; the
defaults here are Oort's. The code subtracts the global model from an update that is already relative to it; we use ‖Δ_i‖. The code's
native aggregation weights are ``uniform``.

With ``importance_data``, clients draw as many samples per epoch as they have, with replacement, ∝ the loss at the start of the epoch.

Li, Zeng, Zhang, Cao, "PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated Learning", MobiCom 2022 (we had
access to the abstract only); code liecn/PyramidFL, training/param_server.py and training/learner.py.
"""

import dataclasses
import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.parameters import parameters
from fedcohort.core.plugins import Card
from fedcohort.selection.client_speed import computing_and_sending
from fedcohort.selection.cohort import MORE_WORK_BY_LOSS, Cohort, Why
from fedcohort.selection.questions import Speed
from fedcohort.selection.strategies.oort import Oort
from fedcohort.selection.strategy_inputs import Census, Outcome, Round

__all__ = ["PyramidFL"]


@parameters
class PyramidFL(Oort):
    """As oort, but fast clients train for more epochs. Clients with small gradients upload less."""

    card: ClassVar[Card] = Card(
        source="Li et al. 2022 (MobiCom); code liecn/PyramidFL, training/param_server.py",
        status="code",
        asks="selected clients for the mean of their squared losses, the number of these samples, and the norm of their update "
        "(3 numbers with the update), and for more epochs; new clients for their speed, once",
        discloses="its mean squared training loss, how many samples it trained on, and the norm of its whole update; "
        + Speed.reveals,
        knows="N_i; times of computing and of sending",
        cost="O(m log m)",
    )
    needs: ClassVar[frozenset[str]] = frozenset({"update_norm"})

    dropout: bool = True
    """Leave out part of the tensors of an update."""
    drop_low: Annotated[float, Ge(0), Le(1)] = 0.1
    """Probability that a tensor is left out, for the client with the largest gradient utility (d_lo)."""
    drop_high: Annotated[float, Ge(0), Le(1)] = 0.6
    """Upper limit of the probability that a tensor is left out, approached for the smallest gradient utility (d_hi)."""
    unsent: Literal["left_out", "unchanged"] = "left_out"
    """Treatment of a tensor that was not sent: left_out of the average, or averaged as unchanged (the code)."""
    adaptive_epochs: bool = True
    """Let fast clients train for more epochs while they wait for the slowest."""
    r_max: Annotated[float, Ge(0)] = 10.0
    """Largest number of additional epochs, as a multiple of E (r_max)."""
    beta: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of the spare time that is used (β); two of the four published configurations use 0.5."""
    importance_data: bool = False
    """Draw the samples of batches ∝ their loss (commented out in the code); an epoch then takes a third longer."""
    max_epochs: Annotated[int, Ge(1)] | None = None
    """Largest number of epochs of a client, but at least E; 5·E if not set."""

    def setup(self, census: Census) -> None:
        """Start with N_i as the gradient utility."""
        super().setup(census)
        self.gradient = census.num_samples.astype(np.float64)

    def select(self, round: Round) -> Cohort:
        """Select Oort's cohort, and set epochs and upload shares."""
        cohort = super().select(round)
        clients = cohort.clients
        drop = self._drop(round, clients) if self.dropout else np.zeros(len(clients))
        epochs = self._epochs(round, clients, drop) if self.adaptive_epochs else None
        terms = {"gradient": self.gradient[clients], "drop": drop}
        terms |= {} if epochs is None else {"epochs": epochs.astype(np.float64)}
        why = None if cohort.why is None else _with_terms(cohort.why, clients, terms)
        return dataclasses.replace(
            cohort,
            epochs=epochs,
            share=1 - drop if self.dropout else None,
            unsent=self.unsent,
            sampling="loss" if self.importance_data else "shuffled",
            why=why,
        )

    def _drop(self, round: Round, clients: Indices) -> Values:
        """drop_i: the larger the gradient utility, the smaller; ties are random."""
        rank = np.empty(len(clients))
        order = round.top(self.gradient[clients], len(clients), among=np.arange(len(clients)))
        rank[order] = np.arange(len(clients))
        return self.drop_low + rank * (self.drop_high - self.drop_low) / max(len(clients), 1)

    def _epochs(self, round: Round, clients: Indices, drop: Values) -> Indices:
        """epochs_i: as many epochs as fit into the time until the slowest client is done."""
        nominal = self.census.epochs
        computing, sending = computing_and_sending(round, self.said, clients)
        computing = computing * (MORE_WORK_BY_LOSS if self.importance_data else 1)
        seconds = computing + (1 - drop) * sending
        known = np.isfinite(seconds)
        if not known.any():
            return np.full(len(clients), nominal)
        per_epoch = computing / nominal  # 0 also for the smallest numbers above 0
        spare = np.where(known & (per_epoch > 0), seconds[known].max() - seconds, 0.0)
        extra = np.floor(spare / np.where(per_epoch > 0, per_epoch, 1.0) + 1e-9)
        ratio = 1 + np.minimum(self.r_max, self.beta * extra / nominal)
        largest = 5 * nominal if self.max_epochs is None else max(self.max_epochs, nominal)
        epochs: Indices = np.minimum(np.floor(nominal * ratio + 1e-9), largest).astype(np.int64)
        return epochs

    def observe(self, outcome: Outcome) -> None:
        """Learn as Oort does, and store the gradient utilities of clients that trained."""
        super().observe(outcome)
        gradient = outcome.billed_report("update_norm") * outcome.billed_report("samples") / 100
        known = outcome.trained & np.isfinite(gradient)
        self.gradient[outcome.cohort.clients[known]] = gradient[known]


def _with_terms(why: Why, clients: Indices, terms: dict[str, Values]) -> Why:
    """``why`` with additional terms of the chosen ``clients``; NaN for the other candidates."""
    # Oort's candidates are ascending, and contain all chosen clients.
    positions = np.searchsorted(why.candidates, clients)
    aligned = {}
    for name, values in terms.items():
        aligned[name] = np.full(len(why.candidates), math.nan)
        aligned[name][positions] = values
    return dataclasses.replace(why, terms={**why.terms, **aligned})
