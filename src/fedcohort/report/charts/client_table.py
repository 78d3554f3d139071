"""List what happened to each client: rounds, accuracy, loss and time, as the sources of UCB selection do."""

import math

import numpy as np
import pandas as pd

from fedcohort.core.arrays import Values
from fedcohort.core.words import formatted_values
from fedcohort.report.charts.shown_seeds import about_seeds, seeds_of
from fedcohort.report.data.report_data import Reading, Story
from fedcohort.report.figures.figure import Figure
from fedcohort.report.notes.client_samples import samples_of_clients

__all__ = ["MOST", "client_table"]

MOST = 100
"""Largest number of clients of each strategy in the table: those that were selected most often."""

COLUMNS = ("num_samples", "accuracy", "loss", "duration")
"""Columns of a run's table of clients that are averaged over the rounds of a client."""


def client_table(story: Story) -> Figure | None:
    """For each strategy, a row for each client: how often it was selected and admitted, and the means over its rounds."""
    if not story.first:
        return None
    frame = pd.concat([_rows(label, reading) for label, reading in story.panels], ignore_index=True)
    score = "score" if story.score.numeric else "accuracy, %"
    clock = "seconds" if any(reading.run.clock == "wall" for _, reading in story.panels) else "simulated time"
    titles = {
        "client": "client", "name": "name", "selected": "rounds selected", "admitted": "rounds admitted", "samples": "samples",
        "last": f"last {score}", "accuracy": f"training {score}", "loss": "training loss", "time": f"{clock} of a round",
    }  # fmt: skip
    titles = {name: title for name, title in titles.items() if name in frame}
    most = max(reading.num_clients for reading in story.first)
    named = story.score.of_client
    note = (
        f"Training {named}, training loss and time are means over the rounds in which the client trained; {named} and loss are those "
        "of the models that it trained, on its training data. "
    )
    if "last" in titles:
        data = samples_of_clients(reading.run for _, reading in story.panels)
        note = f"Last {named}: that of the global model on the client's {data} when it was last measured. {note}"
    note += about_seeds(story, story.panels)
    if most > MOST:
        note += f" The {MOST} clients of {formatted_values.count(most)} that were selected most often."
    seeds = seeds_of(story.panels)
    return Figure("client-table", "Each client", note, [], {"client_table": frame}, sheet=titles, shown_seeds=seeds)


def _rows(label: str, reading: Reading) -> pd.DataFrame:
    clients = np.arange(reading.num_clients)
    own = reading.clients
    known = reading.portrait.facts.get("samples", clients[:0])  # also of clients that were never selected
    trained = own["status"].isin(("admitted", "declined"))
    own = own.assign(duration=own["duration"].where(trained))  # late and failed clients have times, too
    means = own.groupby("client")[[name for name in COLUMNS if name in own]].mean().reindex(clients)
    unit = 1 if reading.run.labels == "numbers" else 100
    frame = pd.DataFrame(
        {
            "strategy": label,
            "client": clients,
            "selected": reading.selected.times,
            "admitted": reading.admitted.times,
            "samples": known if len(known) == len(clients) else means.get("num_samples"),
            "accuracy": means.get("accuracy", np.nan) * unit,
            "loss": means.get("loss"),
            "time": means.get("duration"),
        }
    )
    if len(reading.portrait.names) == len(clients):
        frame.insert(2, "name", list(reading.portrait.names))
    measured = reading.client_accuracy  # of one client if the algorithm pools all data
    if len(measured) and measured.shape[1] == len(clients):
        frame.insert(list(frame).index("samples") + 1, "last", measured.iloc[-1].to_numpy(np.float64) * unit)
    ordered = frame.sort_values("selected", ascending=False, kind="stable").head(MOST)
    kept = ordered if reading.num_clients > MOST else frame
    of_score = 3 if reading.run.labels == "numbers" else 1
    time = _decimals(frame["time"].to_numpy(np.float64, na_value=np.nan))
    digits = {"last": of_score, "accuracy": of_score, "loss": 4, "time": time, "samples": 1}
    return kept.round(digits)


def _decimals(times: Values) -> int:
    """The decimals of a column of times: two, or as many as the shortest time needs for three digits, since its unit can be long."""
    shortest = min(times[times > 0], default=1.0)
    return max(2, 2 - math.floor(math.log10(shortest)))
