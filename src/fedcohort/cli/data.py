"""``fedcohort data``: the data sets, and how they are divided among clients."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from fedcohort.cli.chosen_experiment import experiment_of, row_of
from fedcohort.cli.json_schema import print_document
from fedcohort.cli.options import (
    data_dir_option,
    json_option,
    page_option,
    set_option,
    trust_option,
    variant_option,
    with_options,
)
from fedcohort.core.errors import UsageError

if TYPE_CHECKING:
    from fedcohort.experiment import Experiment
    from fedcohort.federation.data.cache_listing import CachedData
    from fedcohort.federation.data.datasets import Dataset
    from fedcohort.federation.describe_federation import Survey

__all__ = ["data"]


@click.group()
def data() -> None:
    """Show data sets, and how they are divided among clients."""


@data.command("describe")
@click.argument("file", required=False)
@with_options(page_option, variant_option, set_option, data_dir_option, trust_option, json_option)
def describe_data(
    file: str | None,
    output: str | None,
    variant: str | None,
    settings: tuple[str, ...],
    data_dir: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Show the clients of an experiment before any training.

    FILE is an experiment in TOML; without it, the quickstart is used. It can also be data: a folder, a table, a text, a function
    (my.py:load), or the name of a data set. The clients are those of the first seed.
    """
    from fedcohort.cli.watch_runs import messages
    from fedcohort.experiment import Cell
    from fedcohort.experiment.given_objects import Given
    from fedcohort.report import terminal
    from fedcohort.runs.prepare_run import look
    from fedcohort.runs.run_data import on_data

    chosen = experiment_of(file, settings, trust) if file is None or not _is_data(file) else _on(file, settings)
    label, experiment = row_of(chosen, variant)
    given = Given(data_dir=data_dir)
    with messages():
        experiment = on_data(Cell(label, experiment.seed, experiment), given).experiment
        dataset, survey = look(experiment, given)
    if as_json:
        found = _partition_json(experiment, dataset, survey, terminal.quantiles(survey))
        print_document("data-describe", found)
    else:
        screen = terminal.screen()
        screen.print(terminal.partition(experiment, dataset, survey, screen.width))
    if output is not None:
        from fedcohort.report.federation_page import pictures
        from fedcohort.report.write_page import write_page

        write_page(output, pictures(experiment, dataset, survey, label), quiet=as_json)


_UNREAD = frozenset({".gz", ".jpeg", ".jpg", ".json", ".jsonl", ".npy", ".png", ".py", ".tsv", ".xls", ".xlsx", ".zip"})
"""Suffixes of files that are neither experiments nor data that can be read; the message says what to do with them."""


def _is_data(name: str) -> bool:
    """Whether an argument names data, and not an experiment file or a run directory."""
    from pathlib import Path

    from fedcohort.federation.data.load_dataset import NAMES, is_found
    from fedcohort.federation.data.own_data_names import is_own

    path = Path(name)
    if name.endswith(".toml") or (path / "experiment.toml").exists():
        return False
    known = name in NAMES or is_own(name) or is_found(name) or path.suffix.lower() in _UNREAD
    return known or not path.exists()  # the message about unknown data lists what works


def _on(name: str, settings: "Sequence[str]") -> "Experiment":
    """The default experiment on data with this name; a text has a model for tokens."""
    from fedcohort.experiment import Experiment, parse_overrides
    from fedcohort.experiment.nested_values import merge
    from fedcohort.federation.data.dialogue_data import DIALOGUES
    from fedcohort.federation.data.load_dataset import is_text_file

    values: dict[str, object] = {"data": {"name": name}}
    if name in DIALOGUES or is_text_file(name):
        values["model"] = "lstm"
    return Experiment(**merge(values, parse_overrides(settings), where=""))


@data.command("list")
@with_options(data_dir_option, json_option)
def list_data(data_dir: str | None, as_json: bool) -> None:
    """List the data sets that have a name."""
    import os
    from pathlib import Path

    from fedcohort.federation.data.dialogue_data import DIALOGUES
    from fedcohort.federation.data.load_dataset import EMBEDDED, SOURCES
    from fedcohort.report import terminal

    mirror = data_dir or os.environ.get("FEDCOHORT_DATA")
    if mirror and not Path(mirror).is_dir():
        option = "--data-dir" if data_dir else "FEDCOHORT_DATA"
        raise UsageError(f"{option} = {mirror!r}: no such folder; use the folder of a local mirror, or leave it out")
    here = dict.fromkeys(EMBEDDED, "scikit-learn, embedded") | dict.fromkeys(DIALOGUES, "made at run time")
    known = [{"name": name, "from": source, "here": "yes"} for name, source in here.items()]
    for name, sources in SOURCES.items():
        local = [source for source in sources if mirror and (Path(mirror) / source).is_dir()]
        where = f"mirror, {local[0]}" if local else "not in a mirror"
        known.append({"name": name, "from": _origin(sources[-1]), "here": where})
    if as_json:
        print_document("data-list", {"data": known})
    else:
        screen = terminal.screen()
        screen.print(terminal.known_data(known, screen.width))


def _origin(source: str) -> str:
    """Where a data set comes from, by its last source: a Hub id has an owner."""
    return f"Hugging Face Hub, {source}" if "/" in source else "a local mirror only"


def _print_cache(kept: "Sequence[CachedData]", removed: "Sequence[CachedData]") -> None:
    """Print the entries of the cache, and those that were removed."""
    from fedcohort.report import terminal

    screen = terminal.screen()
    screen.print(terminal.cache_table(kept, removed, screen.width))
    for line in terminal.cached_paths(kept, screen.width):
        screen.print(line, soft_wrap=True)


@data.command("cache")
@click.option("--verify", is_flag=True, help="Compare the content of every entry with its hashes.")
@click.option(
    "--clear",
    "names",
    metavar="NAME",
    multiple=True,
    help="Remove an entry, or all entries of a data set. Can be given several times.",
)
@click.option("--clear-older-than", "days", metavar="DAYS", type=float, help="Remove entries that were made earlier.")
@json_option
def show_cache(verify: bool, names: tuple[str, ...], days: float | None, as_json: bool) -> None:
    """List, check or remove decoded data sets in the cache.

    Data sets are decoded once, and every run checks what it reads from the cache.
    """
    from fedcohort.core.words import formatted_values
    from fedcohort.federation.data import cache_listing

    if days is not None and not days >= 0:
        raise UsageError(f"--clear-older-than = {days:g}: use a number of days, 0 or more")
    entries = cache_listing.cached_data()
    chosen = cache_listing.entries_named(names, entries)
    older = [] if days is None else cache_listing.entries_older(days, entries)
    removed = []
    if names or days is not None:
        removed = cache_listing.remove_entries(chosen + [entry for entry in older if entry not in chosen])
    kept = [entry for entry in entries if entry not in removed]
    if verify:
        kept = [cache_listing.check(entry) for entry in kept]
    if as_json:
        print_document(
            "data-cache", {"entries": [*map(_entry_json, kept)], "removed": [entry.name for entry in removed]}
        )
    else:
        _print_cache(kept, removed)
    if damaged := [entry for entry in kept if entry.damage]:
        first = f"'{damaged[0].name}' ({damaged[0].damage})"
        raise UsageError(
            f"{len(damaged)} of {formatted_values.counted(len(kept), 'entry', 'entries')} {'is' if len(damaged) == 1 else 'are'} "
            f"damaged, first {first}; the next use mends them from their source, and --clear NAME removes them"
        )


def _entry_json(entry: "CachedData") -> dict[str, object]:
    state = {} if entry.damage is None else {"damage": entry.damage or None}
    return {"name": entry.name, "data": entry.data, "bytes": entry.num_bytes, "days": round(entry.days, 3)} | state


def _partition_json(
    experiment: "Experiment", dataset: "Dataset", survey: "Survey", quantiles: Mapping[str, Mapping[str, float | None]]
) -> dict[str, object]:
    """The clients of an experiment as plain values."""
    description, report = experiment.to_dict(), survey.report
    unknown = description["federation"]["label_noise"]["name"] == "none"  # the data may have wrong labels of their own
    if unknown:
        quantiles = {**quantiles, "wrong_labels": dict.fromkeys(quantiles["wrong_labels"])}
    section = description["federation"]["partition"]
    clients = [
        {
            "client": i,
            "name": survey.names[i] if survey.names else None,
            "samples": report.sizes[i],
            "counts": report.counts[i],
            "classes_held": report.num_classes[i],
            "largest_class": report.dominant[i] if report.dominant[i] >= 0 else None,
            "largest_class_share": report.dominant_share[i],
            "distance": report.distance[i],
            "held_out": survey.held_out[i],
            "wrong_labels": None if unknown else survey.wrong_labels[i],
            "time": survey.time[i],
            "sending": survey.sending[i],
            "shift": survey.shift[i] if survey.shift else None,
            "presence": survey.presence[i],
        }
        for i in range(len(report.sizes))
    ]
    return {
        "data": dataset.name,
        "classes": list(dataset.classes),
        "train_samples": dataset.num_train,
        "test_samples": len(dataset.test_labels),
        "partition": section,
        "label_noise": description["federation"]["label_noise"],
        "feature_shift": description["federation"]["feature_shift"],
        "systems": description["systems"],
        "dropped": report.dropped,
        # null if it is undefined
        "effective_alpha": "inf" if report.effective_alpha == math.inf else report.effective_alpha,
        "seed": experiment.seed,
        "clients": clients,
        "quantiles": quantiles,
    }
