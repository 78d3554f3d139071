"""The pictures on the pages of strategies and algorithms, drawn from runs on the same small federation.

The runs are those of this command, for the first seed; finished runs are opened, and only missing ones are played:

    fedcohort compare experiments/all_strategies_digits.toml --set seeds=1
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from navigation import CLONE
from numpy.typing import NDArray
from public_names import ENTRIES

import fedcohort

__all__ = ["FILE", "drawn_accuracy", "drawn_picks", "pictures"]

FILE = CLONE / "experiments" / "all_strategies_digits.toml"
CELL, GAP, LEFT, TOP = 17, 3, 104, 30
FEDERATION = (
    "12 clients with skewed classes, partly wrong labels and unequal speeds; 3 clients per round, 30 rounds, seed 0"
)
COMMAND = (  # without a break at a hyphen
    'fedcohort compare experiments/all_strategies_digits.toml <span class="unbroken">--set seeds=1</span>'
)
PUBLIC = {"name": "holdout"}


def pictures(runs: Path) -> dict[str, str]:
    """The picture of every strategy and every algorithm, by name.

    Args:
        runs: folder of run directories; missing runs are played there.
    """
    experiment = fedcohort.load_experiment(FILE, ["seeds=1"])
    found = {}
    for row in fedcohort.compare(experiment, runs=runs).rows:
        name = row.runs[0].experiment.selection.name
        found[name] = _picks_of(row.runs[0], row.label)
    return found | _algorithms(experiment.base, runs)


def _picks_of(run: fedcohort.Run, label: str) -> str:
    rounds, clients = len(run.rounds), run.experiment.federation.clients
    state: NDArray[np.int8] = np.zeros((clients, rounds), dtype=np.int8)
    for row in run.clients.itertuples():
        state[row.client, row.round - 1] = 1 if row.status == "admitted" else 2
    samples = [int(count) for count in np.asarray(run.portrait.facts["counts"]).sum(axis=1)]
    return drawn_picks(state, samples, label)


def _algorithms(base: fedcohort.Experiment, runs: Path) -> dict[str, str]:
    """Accuracy over rounds of every algorithm, beside federated averaging, all with uniform selection."""
    values = base.model_dump()
    labels = {entry.name: entry.cls.__name__ for entry in ENTRIES.values() if entry.kind == "algorithm"}
    curves = {}
    for name in labels:
        own = values | {"algorithm": {"name": name}, "public": PUBLIC, "name": "algorithms-digits"}
        run = fedcohort.run(fedcohort.Experiment(**own), runs=runs)
        curves[name] = 100 * run.rounds["test_accuracy"].to_numpy(dtype=float)
    return {name: drawn_accuracy(curves[name], curves["fedavg"], label) for name, label in labels.items()}


# --- drawings ------------------------------------------------------------------------------------------------------------------


def _figure(width: int, height: int, title: str, marks: Sequence[str], caption: str) -> str:
    body = "".join(marks)
    return (
        '```{raw} html\n<figure class="picks">'
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(title)}" font-size="12">{body}</svg>'
        f"<figcaption>{caption}</figcaption></figure>\n```"
    )


def drawn_picks(state: NDArray[np.int8], samples: Sequence[int], label: str) -> str:
    """Clients × rounds, with a filled cell where a client's update entered the model.

    Args:
        state: 0 not selected, 1 admitted, 2 selected without entering the model, int8 [m, rounds].
        samples: training samples of each client [m]; clients are shown from the largest to the smallest.
        label: what the strategy is called.
    """
    clients, rounds = state.shape
    step = CELL + GAP
    counts = (state > 0).sum(axis=1)
    marks = [
        '<text x="0" y="14" class="secondary">samples</text>',
        f'<text x="{LEFT - 12}" y="14" text-anchor="end" class="secondary">client</text>',
        f'<text x="{LEFT}" y="14" class="secondary">round 1</text>',
    ]
    marks.append(f'<text x="{LEFT + rounds * step}" y="14" text-anchor="end" class="secondary">{rounds}</text>')
    marks.append(f'<text x="{LEFT + rounds * step + 8}" y="14" class="secondary">rounds</text>')
    for place, client in enumerate(sorted(range(clients), key=lambda i: (-samples[i], i))):
        y = TOP - 8 + place * step
        marks.append(f'<text x="0" y="{y + 13}">{samples[client]:,}</text>')
        marks.append(f'<text x="{LEFT - 12}" y="{y + 13}" text-anchor="end" class="secondary">{client}</text>')
        for t in range(rounds):
            kind = ("empty", "selected", "lost")[state[client, t]]
            inset = 1 if kind == "lost" else 0
            size = CELL - 2 * inset
            marks.append(
                f'<rect class="{kind}" x="{LEFT + t * step + inset}" y="{y + inset}" width="{size}" height="{size}" rx="3"/>'
            )
        marks.append(f'<text x="{LEFT + rounds * step + 8}" y="{y + 13}">{counts[client]}</text>')
    title = f"Clients that {label} selected in each round"
    hollow = " A hollow cell is a selected client whose update did not enter the model." if (state == 2).any() else ""
    caption = (
        f"Clients that <em>{escape(label)}</em> selected, largest client first ({FEDERATION}). At the right, the number of rounds in "
        f"which a client was selected.{hollow} Made by <code>{COMMAND}</code>."
    )
    return _figure(LEFT + rounds * step + 52, TOP + clients * step, title, marks, caption)


def drawn_accuracy(curve: NDArray[np.float64], reference: NDArray[np.float64], label: str) -> str:
    """Test accuracy in % over rounds, beside that of federated averaging."""
    width, height, left, low = 560, 250, 46, 24

    def path(values: NDArray[np.float64]) -> str:
        points = [
            f"{left + (t + 0.5) * (width - left - 120) / len(values):.1f},{height - low - value * (height - low - 20) / 100:.1f}"
            for t, value in enumerate(values)
            if np.isfinite(value)
        ]
        return "M" + "L".join(points)

    def end(values: NDArray[np.float64]) -> float:
        return height - low - float(values[np.isfinite(values)][-1]) * (height - low - 20) / 100

    marks = []
    for level in (0, 25, 50, 75, 100):
        y = height - low - level * (height - low - 20) / 100
        marks.append(f'<line class="grid" x1="{left}" x2="{width - 120}" y1="{y}" y2="{y}"/>')
        marks.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" class="secondary">{level}</text>')
    marks.append('<text x="0" y="12" class="secondary">test accuracy, %</text>')
    marks.append(f'<text x="{left}" y="{height - 4}" class="secondary">round 1</text>')
    marks.append(f'<text x="{width - 120}" y="{height - 4}" text-anchor="end" class="secondary">{len(curve)}</text>')
    same = label == "FedAvg"
    if not same:
        marks.append(f'<path class="reference" d="{path(reference)}"/>')
    marks.append(f'<path class="line" d="{path(curve)}"/>')
    own, other = end(curve), end(reference)
    if not same and abs(own - other) < 14:
        own, other = (own - (14 - (other - own)) / 2, other + (14 - (other - own)) / 2) if own <= other else (
            own + (14 - (own - other)) / 2, other - (14 - (own - other)) / 2
        )  # fmt: skip
    marks.append(f'<text x="{width - 112}" y="{own + 4:.1f}">{escape(label)}</text>')
    if not same:
        marks.append(f'<text x="{width - 112}" y="{other + 4:.1f}" class="secondary">FedAvg</text>')
    beside = "" if same else " (solid) beside federated averaging (dashed)"
    caption = (
        f"Test accuracy of <em>{escape(label)}</em>{beside}, with uniform selection: {FEDERATION}. This is one seed: it shows how the "
        "algorithm behaves, and not which one is better."
    )
    return _figure(width, height, f"Test accuracy of {label} over rounds", marks, caption)
