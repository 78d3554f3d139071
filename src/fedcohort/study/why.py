"""Why these clients: one round's decision from a run's record, in words and numbers.

Everything comes from what the run recorded: the candidates with their scores and the terms of these, what became of the selected, what
was asked and what it cost, what clients disclosed. No data are loaded and nothing is computed again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.core.parameters import describe
from fedcohort.core.words import number, setting
from fedcohort.record import KEPT, Run

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Asked", "Candidate", "Explanation", "explain"]


@dataclass(frozen=True)
class Candidate:
    """A client that was compared, or at least selected.

    Attributes:
        client: id.
        selected: whether it was selected.
        score: what it was compared by; NaN where it has none.
        rank: place by score among the candidates, 1 for the highest, the mean place of those that tie; NaN without a score.
        terms: what the score is made of.
        status: what became of it: admitted, declined, failed, late or diverged; empty if it was not selected.
        detail: why, where there is a reason.
        outcome: of the selected: samples, steps, simulated time, weight, loss, accuracy, and what else it reported.
    """

    client: int
    selected: bool
    score: float
    rank: float
    terms: Mapping[str, float]
    status: str = ""
    detail: str = ""
    outcome: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """One kind of exchange of the round: a question, or the training.

    Attributes:
        kind: its name.
        messages: down and up.
        bytes_down, bytes_up: payload.
        passes: forward passes over clients' training data.
        discloses: what the server learned of each of them.
    """

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    passes: float
    discloses: str


@dataclass(frozen=True)
class Explanation:
    """One decision.

    Attributes:
        label: what the run is called.
        strategy: the strategy, k, and the parameters that are not as by default.
        round, rounds: which round of how many.
        note: what kind of choice it was, and what the shared rules had to do.
        available, selected, trained, admitted: how many clients.
        round_time: simulated.
        candidates: the selected first, then the best scored.
        asked: what was asked of clients, and the training.
        client: whom the question is about; None for the whole round.
        earlier: earlier rounds in which that client was selected.
    """

    label: str
    strategy: str
    round: int
    rounds: int
    note: str
    available: int
    selected: int
    trained: int
    admitted: int
    round_time: float
    candidates: Sequence[Candidate]
    asked: Sequence[Asked]
    client: int | None = None
    earlier: Sequence[int] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values; of one client only its own row, and the words about it."""
        values = asdict(self)
        if self.client is not None:
            values["candidates"] = [one for one in values["candidates"] if one["client"] == self.client]
        return values | {"words": self.words()}

    def words(self) -> list[str]:
        """The decision in sentences."""
        lines = [f"{self.note[:1].upper()}{self.note[1:]}." if self.note else "The strategy gave no reason."]
        compared = len(self.candidates)
        most = f"at least {compared:,}" if compared >= KEPT else f"{compared:,}"
        lines.append(
            f"Of {self.available:,} available clients {most} were compared and {self.selected:,} selected; {self.trained:,} trained, "
            f"{self.admitted:,} entered the model. The round took {number(self.round_time)} of simulated time."
        )
        if self.client is None:
            return lines
        one = next((one for one in self.candidates if one.client == self.client), None)
        return [*self._words(one), *lines]

    def _words(self, one: Candidate | None) -> list[str]:
        who = f"Client {self.client}"
        if one is None:
            return [
                f"{who} was available in round {self.round}, but not among the {len(self.candidates):,} that were compared.",
                self._history(),
            ]
        said = [f"{who} was {'' if one.selected else 'not '}selected in round {self.round}: {_made_of(one)}."]
        if math.isfinite(one.rank) and len(self.candidates) > 1:
            said[0] += " " + self._standing(one)
        if one.selected:
            said.append(_became(one))
        return [*said, self._history()]

    def _standing(self, one: Candidate) -> str:
        others = [
            other.score for other in self.candidates if other.client != one.client and not math.isnan(other.score)
        ]
        chosen = [c.score for c in self.candidates if c.selected and c.client != one.client and not math.isnan(c.score)]
        tied = sum(score == one.score for score in others)
        place = f"It is number {number(one.rank)} of {len(others) + 1:,} by score"
        if tied:
            place = f"It has the same score as {tied:,} of {len(others):,} others"
        if not chosen or tied == len(others):
            return f"{place}."
        between = number(chosen[0]) if len(set(chosen)) == 1 else f"{number(min(chosen))} to {number(max(chosen))}"
        return f"{place}; the {'other ' if one.selected else ''}selected have {between}."

    def _history(self) -> str:
        if not self.earlier:
            return "It had not been selected before." if self.round > 1 else "It was the first round."
        last = ", ".join(map(str, self.earlier[-5:]))
        more = "…, " if len(self.earlier) > 5 else ""
        return f"It had been selected in {len(self.earlier):,} of {self.round - 1:,} rounds before: {more}{last}."


def explain(run: Run, round: int, client: int | None = None) -> Explanation:
    """The decision of a round, and with ``client`` what it means for that client.

    Raises:
        UsageError: the run has no such round or client, or the client was not available in that round.
    """
    experiment, played = run.experiment, _rows(run.rounds.reset_index())
    row = next((row for row in played if row["round"] == round), None)
    if row is None:
        said = f"it has rounds 1 to {len(played)}" if played else "it has no finished round yet"
        raise UsageError(f"--round {round}: {run.path} has no such round; {said}")
    clients, ledger, decisions = run.clients, run.ledger, run.decisions
    candidates = _candidates(
        decisions[decisions["round"] == round], {c["client"]: c for c in _rows(clients[clients["round"] == round])}
    )
    earlier: list[int] = []
    if client is not None:
        m = len(run.portrait.facts.get("samples", ())) or experiment.federation.clients  # 1 where all data are pooled
        if not 0 <= client < m:
            valid = f"they are numbered 0 to {m - 1}" if m > 1 else "its only one is 0"
            raise UsageError(f"--client {client}: the federation has no such client; {valid}")
        known = sorted({one.client for one in candidates})
        if client not in known and not _there(run, round, client):
            among = f"{row['available']:,} of {m:,} clients were, among them {', '.join(map(str, known[:12]))}"
            raise UsageError(
                f"--client {client}: was not available in round {round}; {among if known else 'nobody was'}"
                + (", …" if len(known) > 12 else "")
            )
        mine = clients[(clients["client"] == client) & (clients["round"] < round)]
        earlier = [int(t) for t in mine["round"]]
    exchanges = sorted(_rows(ledger[ledger["round"] == round]), key=lambda e: (e["kind"] == "training", e["kind"]))
    return Explanation(
        label=f"{run.meta['label']}, seed {run.meta['seed']}",
        strategy=_strategy(run),
        round=round,
        rounds=experiment.rounds,
        note=row["note"],
        available=row["available"],
        selected=row["selected"],
        trained=row["trained"],
        admitted=row["admitted"],
        round_time=row["round_time"],
        candidates=candidates,
        asked=[
            Asked(e["kind"], e["messages"], e["bytes_down"], e["bytes_up"], e["passes"], e["discloses"])
            for e in exchanges
        ],
        client=client,
        earlier=earlier,
    )


def _rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table as plain values."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _candidates(decisions: "pd.DataFrame", became: Mapping[int, Mapping[str, Any]]) -> list[Candidate]:
    """The candidates of one round; ``became`` has what became of the selected."""
    ranks = decisions["score"].rank(ascending=False)
    terms = decisions.drop(columns=["round", "client", "selected", "score"]).dropna(axis="columns", how="all")
    return [
        Candidate(
            client=row["client"],
            selected=row["selected"],
            score=row["score"],
            rank=rank,
            terms={name: row[name] for name in map(str, terms.columns)},
            status=became.get(row["client"], {}).get("status", ""),
            detail=became.get(row["client"], {}).get("detail", ""),
            outcome={
                name: float(value)
                for name, value in became.get(row["client"], {}).items()
                if name not in ("round", "client", "status", "detail") and not math.isnan(value)
            },
        )
        for row, rank in zip(_rows(decisions), ranks.tolist(), strict=True)
    ]


def _there(run: Run, round: int, client: int) -> bool:
    """Whether a client could have been chosen: a function of the law of presence and the seed, and of its having data."""
    experiment = run.experiment
    presence = experiment.systems.availability.build().presence(
        experiment.federation.clients, experiment.rounds, experiment.seed
    )
    samples = run.portrait.facts.get("samples")
    return bool(presence(round)[client]) and (samples is None or bool(samples[client] > 0))


def _strategy(run: Run) -> str:
    """Name and parameters; what was handed over in Python stands in the head of the description."""
    for line in (run.path / "experiment.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("# selector: handed over in Python: "):
            return line.partition("Python: ")[2]
    selection = run.experiment.selection
    usual = {row.name: row.default for row in describe(selection.table.find(selection.name, "selection.name"))}
    own = {name: value for name, value in selection.parameters.items() if value != usual.get(name)}
    settings = {"k": selection.k, **own}
    texts = {name: number(value) if isinstance(value, float) else setting(value) for name, value in settings.items()}
    return f"{selection.name}({', '.join(f'{name} = {text}' for name, text in texts.items())})"


def _made_of(one: Candidate) -> str:
    """A score and its terms; as a sum, a product or a quotient of the first of them where it is one."""
    terms = {name: value for name, value in one.terms.items() if not math.isnan(value)}
    if math.isnan(one.score):
        return "it has no score" + (f" ({_list(terms)})" if terms else "")
    score = f"its score is {number(one.score)}"
    if not terms:
        return score
    if len(terms) == 1 and one.score in terms.values():
        return f"{score}, its {next(iter(terms))}"
    used, formula = _formula(one.score, [*terms.items()])
    rest = _list(dict([*terms.items()][used:]))
    return score + (f" = {formula}" if formula else "") + (f" ({rest})" if rest else "")


def _formula(score: float, terms: Sequence[tuple[str, float]]) -> tuple[int, str]:
    """How the first so many terms make the score: their number and the formula; 0 if it cannot be seen."""
    values, words = [value for _, value in terms], [f"{name} {number(value)}" for name, value in terms]
    if not np.isfinite(values).all():
        return 0, ""

    def makes(found: float) -> bool:
        return bool(np.isclose(found, score, rtol=1e-9, atol=1e-12))

    for n in range(2, len(values) + 1):
        if makes(sum(values[:n])):
            return n, " + ".join(words[:n])
    if len(values) > 2 and makes((values[0] + values[1]) * values[2]):
        return 3, f"({words[0]} + {words[1]}) × {words[2]}"
    if len(values) > 1 and makes(math.prod(values)):
        return len(values), " × ".join(words)
    if len(values) == 2 and values[1] and makes(values[0] / values[1]):
        return 2, f"{words[0]} / {words[1]}"
    return 0, ""


def _list(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in values.items())


_USUAL = ("num_samples", "steps", "duration", "weight", "loss", "accuracy")


def _became(one: Candidate) -> str:
    """What became of a selected client."""
    did = one.outcome
    worked = f"It trained for {did.get('steps', 0):,.0f} steps on {did.get('num_samples', 0):,.0f} samples"
    if "duration" in did:
        worked += f" and needed {number(did['duration'])} of simulated time"
    end = {
        "admitted": f"its update entered the model with {100 * did.get('weight', 0.0):.1f} % of the weight",
        "declined": "its update did not enter the model: it was declined",
        "late": f"it came late: {one.detail}",
        "diverged": one.detail,
    }.get(one.status)
    more = {name: value for name, value in did.items() if name not in _USUAL}
    reported = f" It reported {_list(more)}." if more else ""
    if end is None:
        return f"It failed: {one.detail}."
    return f"{worked}; {end}.{reported}"
