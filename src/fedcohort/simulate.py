"""Play an experiment on this machine and keep the record: prepare, resume, rounds, finish."""

import copy
import hashlib
import inspect
import logging
import math
import platform
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.core.errors import UsageError
from fedcohort.experiment import Cell, Experiment, Systems
from fedcohort.federation.datasets import Dataset
from fedcohort.record import Portrait, RoundRow, Run, Saved, Writer

if TYPE_CHECKING:
    from fedcohort.engines.base import Later
    from fedcohort.federation.federation import Federation
    from fedcohort.federation.partition import Partition
    from fedcohort.federation.public import PublicSet
    from fedcohort.federation.survey import Survey
    from fedcohort.federation.systems import Clock

__all__ = ["Given", "Interrupted", "Progress", "find_run", "prepare", "run", "run_cell", "run_path"]

log = logging.getLogger("fedcohort")
"""Tells which plan ``engine.plan = "auto"`` has chosen, and why."""

HANDED_OVER = "given"
"""The name of public samples that Python hands over."""

Progress = Callable[[Cell, RoundRow], None]
"""Called after every committed round, in the thread that plays; the next round may be training already."""


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C: the round was finished and recorded; the message says how to go on."""


@dataclass(frozen=True)
class Given:
    """What Python hands over in place of names in the experiment; None leaves it to the experiment.

    Attributes:
        data: a :class:`fedcohort.Dataset`, see :func:`fedcohort.from_arrays`.
        model: an ``nn.Module``, a factory of one (called with sample shape and number of classes, or without arguments), or a Model.
        selector: a strategy; every run gets a copy.
        algorithm: an algorithm; every run gets a copy.
        data_dir: a local mirror in the layout of the Hugging Face Hub.
        public: the server's public samples, a Dataset whose training part is used, or samples alone [N, ...]; see ``[public]``.
    """

    data: Dataset | None = None
    model: Any = None
    selector: Any = None
    algorithm: Any = None
    data_dir: str | Path | None = None
    public: Any = None

    def __post_init__(self) -> None:
        if self.public is not None and not isinstance(self.public, Dataset):
            from fedcohort.federation.public import samples_alone

            object.__setattr__(self, "public", samples_alone(self.public))

    def key(self) -> str:
        """What of this decides the results, for the run's hash."""
        parts = []
        if self.data is not None:
            parts.append(self.data.fingerprint)
        if self.model is not None:
            parts.append(_identity(self.model))
        parts += [_identity(part) for part in (self.selector, self.algorithm) if part is not None]
        if self.public is not None:
            parts.append(f"public {self.public.fingerprint}")
        return "|".join(parts)

    def names(self) -> str:
        """What was handed over in Python, in words; empty if nothing was."""
        kinds = ("data", "model", "selector", "algorithm", "public")
        return ", ".join(name for name in kinds if getattr(self, name) is not None)

    def note(self) -> str:
        """What was handed over in Python, as comments for the head of the resolved experiment file."""
        given = {name: getattr(self, name) for name in self.names().split(", ") if name}
        if self.data is not None:
            given["data"] = f"{self.data.name}, {self.data.fingerprint[:12]}"
        if self.public is not None:
            given["public"] = f"{self.public.name}, {self.public.fingerprint[:12]}"
        lines = [f"# {name}: handed over in Python: {' '.join(str(value).split())}\n" for name, value in given.items()]
        return "".join(lines)


def run(
    experiment: Experiment | None = None,
    *,
    data: Dataset | None = None,
    model: Any = None,
    selector: Any = None,
    algorithm: Any = None,
    data_dir: str | Path | None = None,
    public: Any = None,
    runs: str | Path = "runs",
    progress: Progress | None = None,
) -> Run:
    """Run the base of an experiment under its first seed, or go on where it was interrupted; a finished run is opened, not repeated.

    Args:
        experiment: what to run; the quickstart by default.
        data, model, selector, algorithm: objects in place of the experiment's names, see :class:`Given`.
        data_dir: a local mirror of data sets in Hub layout.
        public: the server's public samples, see :class:`Given`.
        runs: folder of run directories.
        progress: called after every round.

    Raises:
        UsageError: something in the description, the data or the run directory cannot be used.
        Interrupted: Ctrl-C; everything up to the last finished round is kept.
    """
    experiment = experiment or Experiment()
    label = experiment.label if selector is None else type(selector).__name__
    cell = Cell(label, experiment.seed, experiment.single(experiment.seed))
    return run_cell(cell, Given(data, model, selector, algorithm, data_dir, public), runs=runs, progress=progress)


def run_cell(cell: Cell, given: Given, *, runs: str | Path = "runs", progress: Progress | None = None) -> Run:
    """Run one cell of an experiment; see :func:`run`."""
    cell = _here(cell)
    done = find_run(cell, given, runs)
    if done is not None:
        done.verify()
        cell = _with_plan(cell, done.experiment.engine.plan)
    experiment = cell.experiment
    if done is not None and done.finished:
        _same_data(done, fingerprint_of(experiment, given), experiment)
        return done
    from fedcohort.engines.device import moved

    with prepare(experiment, given) as (game, fingerprint):
        cell = _with_plan(cell, game.engine.plan)
        experiment = cell.experiment
        path = done.path if done is not None else run_path(cell, given, runs)
        meta = {
            "name": experiment.name,
            "label": cell.label,
            "seed": str(cell.seed),
            "key": experiment.key(given.key()),
            "row": experiment.single(0).key(given.key()),
            "public": experiment.public.words
            if given.public is None
            else f"proxy: {given.public.name}, labels discarded",
            "given": given.names(),
            "algorithm": game.algorithm.title(experiment.training),
            "plan": game.engine.plan,
            "ours": "\n".join(experiment.ours()),
        }
        description, files = _with_own_files(experiment)
        record = Run.create(path, given.note() + description, meta | {"data": fingerprint, **_versions()}, files=files)
        _same_data(record, fingerprint, experiment)
        with record.writing() as writer, _finish_the_round() as stop:
            if not record.portrait.facts:
                writer.describe(game.portrait())
            saved = record.checkpoint()
            first = 1
            if saved is not None:
                first = saved[0] + 1
                game.load_state_dict(moved(saved[1], game.engine.device))
            writer.rewind(first - 1)
            _play(cell, game, writer, first, stop, progress, path)
    return Run(path)


def _here(cell: Cell) -> Cell:
    """The cell on the device that this machine has for it, if it leaves the choice."""
    if cell.experiment.engine.device != "auto":
        return cell
    from fedcohort.engines.device import pick_device

    return replace(cell, experiment=cell.experiment.with_overrides({"engine": {"device": pick_device("auto")}}))


def _with_plan(cell: Cell, plan: str) -> Cell:
    """The cell with the plan that was chosen for it, if it leaves the choice; in a run there is no choice left."""
    if cell.experiment.engine.plan != "auto" or plan == "auto":
        return cell
    return replace(cell, experiment=cell.experiment.with_overrides({"engine": {"plan": plan}}))


def _play(
    cell: Cell, game: Any, writer: Writer, first: int, stop: threading.Event, progress: Progress | None, path: Path
) -> None:
    """All rounds. What of a round's model is measured for the record alone is measured beside the training of the next round, and the
    round is committed as soon as that is done."""
    from fedcohort.core.threads import one_thread
    from fedcohort.rounds import play_round
    from fedcohort.selection.base import LocalAccuracy

    experiment, measures = cell.experiment, cell.experiment.measures
    question, every = LocalAccuracy(held_out=experiment.federation.holdout > 0), measures.clients_every
    waiting: tuple[Callable[[], None], list[Later]] | None = None
    recording = 0.0  # a round's own recording is only known once it is recorded: the next round's row carries it

    def played(row: RoundRow, validate: "Later | None", test: "Later | None", saved: Saved | None) -> None:
        nonlocal waiting

        def commit() -> None:
            """Wait for what is measured, then record the round and tell."""
            nonlocal recording
            begin = time.perf_counter()
            if validate is not None:
                found = validate()
                row.add_validation(found.accuracy, found.loss)
            if test is not None:
                found = test()
                row.add_test(found.accuracy, found.loss, found.class_accuracy.tolist())
            waited = time.perf_counter() - begin
            row.wall["evaluation"] = row.wall.get("evaluation", 0.0) + waited
            row.wall["total"] += waited
            begin = time.perf_counter()
            writer.record(row, saved)
            recording += time.perf_counter() - begin
            if progress is not None:
                progress(cell, row)

        waiting = commit, [later for later in (validate, test) if later is not None]

    def settle(*, wait: bool = False) -> bool:
        """Commit the round that waits for it, if what is measured of it is there; whether one is left."""
        nonlocal waiting
        if waiting is not None and (wait or all(later.done() for later in waiting[1])):
            commit, waiting = waiting[0], None
            commit()
        return waiting is not None

    game.engine.meanwhile = settle
    with one_thread():
        for t in range(first, experiment.rounds + 1):
            last = t == experiment.rounds
            served = every > 0 and (last or t % every == 0)
            try:
                row = play_round(game, t, test=False, clients=question if served else None)
            except Exception:
                settle(wait=True)
                raise
            row.wall["recording"], recording = recording, 0.0
            settle(wait=True)
            begin, stopping = time.perf_counter(), stop.is_set()
            due = last or stopping or t % measures.checkpoint_every == 0
            saved = writer.save(t, game.state_dict()) if due else None
            recording += time.perf_counter() - begin
            tested = last or t % measures.evaluate_every == 0
            validate = None if game.validates else game.engine.evaluate_beside(game.model, "validation")
            test = game.engine.evaluate_beside(game.model, "test") if tested else None
            played(row, validate, test, saved)
            if last or stopping:
                settle(wait=True)
            if stopping and not last:
                raise Interrupted(
                    f"stopped after round {t} of {experiment.rounds}; the same command goes on from there ({path})"
                )
    writer.finish(game.model)


def _with_own_files(experiment: Experiment) -> tuple[str, dict[str, bytes]]:
    """The description for a run's directory, and copies of the users' own files that it then refers to: they may change or go."""
    text, files = experiment.to_toml(), {}
    for file in experiment.own_files():
        content = file.read_bytes()
        name = f"plug-ins/{file.stem}-{hashlib.sha256(content).hexdigest()[:8]}.py"
        files[name] = content
        text = text.replace(f"{file}:", f"{name}:")
    return text, files


def fingerprint_of(experiment: Experiment, given: Given) -> str:
    """Fingerprint of the data that the experiment now names, as a run keeps it."""
    return _data(experiment, given)[1].fingerprint


def _data(experiment: Experiment, given: Given) -> "tuple[Dataset, PublicSet]":
    """All data of an experiment, and what of them is public."""
    from fedcohort.federation import datasets
    from fedcohort.federation.public import choose_public

    data, public = experiment.data, experiment.public
    dataset = given.data or datasets.load(
        data.name, data_dir=given.data_dir, image_column=data.image_column, label_column=data.label_column
    )

    def proxy(name: str) -> Dataset:
        if isinstance(given.public, Dataset):
            return given.public
        if name == HANDED_OVER:
            raise UsageError(
                f"public.name = {HANDED_OVER!r}: nothing was handed over; use fedcohort.run(…, public=…), 'holdout' or a data set"
            )
        return datasets.load(name, data_dir=given.data_dir)

    dataset = datasets.part(dataset, data.share)
    name = public.name if given.public is None else HANDED_OVER
    return dataset, choose_public(name, public.share, dataset, experiment.seed, load=proxy)


@dataclass(frozen=True, eq=False)
class Federated:
    """The clients of an experiment, and what they were made of.

    Attributes:
        dataset: all data.
        split: which of its training samples belongs to whom.
        federation: the clients as they train, with noise, local splits and shift.
        public: samples set apart for the server.
    """

    dataset: Dataset
    split: "Partition"
    federation: "Federation"
    public: "PublicSet"


def federate(experiment: Experiment, given: Given, device: str = "cpu") -> Federated:
    """The clients of an experiment: data, public samples set apart, partition, noise, local splits, shift; samples on ``device``."""
    from fedcohort.federation.federation import gather
    from fedcohort.federation.partition import partition

    seed, data = experiment.seed, experiment.data
    dataset, public = _data(experiment, given)
    split = partition(
        experiment.federation.partition.build(),
        dataset.train_labels[public.rest],
        experiment.federation.clients,
        seed,
        None if dataset.writers is None else dataset.writers[public.rest],
    )
    split = replace(split, order=public.rest[split.order])
    federation = gather(
        dataset,
        split,
        validation=data.validation,
        seed=seed,
        label_noise=experiment.federation.label_noise.build(),
        holdout=experiment.federation.holdout,
        feature_shift=experiment.federation.feature_shift.build(),
        device=device,
    )
    return Federated(dataset, split, federation, public)


def look(experiment: Experiment, given: Given) -> "tuple[Dataset, Survey]":
    """The data of an experiment and its federation, client by client, without training anything."""
    from fedcohort.engines.local import build_module
    from fedcohort.federation.featureshift import Space, in_words
    from fedcohort.federation.survey import survey
    from fedcohort.federation.systems import Clock
    from fedcohort.models import as_model
    from fedcohort.rounds.ledger import num_bytes
    from fedcohort.training.local import DTYPES, state_of

    found, systems, seed = federate(experiment, given), experiment.systems, experiment.seed
    federation = found.federation
    model = as_model(given.model) if given.model is not None else experiment.model.build()
    algorithm = given.algorithm if given.algorithm is not None else experiment.algorithm.build()
    start = state_of(build_module(model, federation, seed).to(dtype=DTYPES[experiment.training.precision]))
    clock = Clock(
        federation.num_samples,
        seed,
        systems.latency.build(),
        systems.availability.build(),
        systems.network.build(),
        rounds=experiment.rounds,
        deadline=systems.deadline,
        model_bytes=num_bytes([start]),
        epochs=algorithm.local_training(experiment.training).epochs,
    )
    space = Space(federation.sample_shape, np.ones(()), federation.num_clients)
    shift = in_words(experiment.federation.feature_shift.build(), space, seed=seed)
    seen = survey(found.dataset.train_labels, found.split, federation, clock, experiment.rounds, shift)
    return found.dataset, seen


@contextmanager
def prepare(experiment: Experiment, given: Given) -> Iterator[tuple[Any, str]]:
    """Everything of one run, ready for its first round: the game, and the fingerprint of its data. Closes the engine at the end."""
    from fedcohort.algorithms.server import ServerTools
    from fedcohort.engines.device import pick_device
    from fedcohort.engines.local import LocalEngine, build_module
    from fedcohort.engines.plans import choose_plan
    from fedcohort.experiment.pairings import check
    from fedcohort.federation.pooled import pooled
    from fedcohort.federation.systems import Clock
    from fedcohort.models import as_model
    from fedcohort.rounds import Game
    from fedcohort.rounds.ledger import num_bytes
    from fedcohort.selection.base import Census
    from fedcohort.selection.everyone import All

    seed, found = experiment.seed, federate(experiment, given, pick_device(experiment.engine.device))
    federation, public = found.federation, found.public
    selector = copy.deepcopy(given.selector) if given.selector is not None else experiment.selection.build()
    algorithm = copy.deepcopy(given.algorithm) if given.algorithm is not None else experiment.algorithm.build()
    for part in (selector, algorithm):
        experiment.meet(part.needs - ({"public"} if given.public is not None else set()), type(part).__name__)
    check(selector, algorithm)
    systems, k = experiment.systems, experiment.selection.k
    if algorithm.pools:
        federation, selector, systems, k = pooled(federation), All(), Systems(), 1
    model = as_model(given.model) if given.model is not None else experiment.model.build()
    algorithm.prepare(
        ServerTools(
            build=partial(build_module, as_model(model), federation, seed),
            prepared=federation.prepare,
            num_classes=federation.num_classes,
            public=(public.features() if "public" in algorithm.needs else federation.test[:0].features).to(
                federation.device
            ),
            validation=(federation.validation.features, federation.validation.labels),
            seed=seed,
        )
    )
    histogram = federation.histogram() if "histogram" in selector.needs else None
    plan, workers = experiment.engine.plan, experiment.engine.workers
    if plan == "auto":
        invited = min(math.ceil(k * systems.overcommit), federation.num_clients)
        choice = choose_plan(
            federation, as_model(model), experiment.training, algorithm, seed, workers, invited,
            experiment.engine.arithmetic,
        )  # fmt: skip
        log.info("%s", choice)
        plan = choice.plan
    engine = LocalEngine(
        federation, as_model(model), experiment.training, algorithm, seed, workers,
        plan=plan, arithmetic=experiment.engine.arithmetic,
    )  # fmt: skip
    try:
        start = engine.initial_model()
        clock = Clock(
            federation.num_samples,
            seed,
            systems.latency.build(),
            systems.availability.build(),
            systems.network.build(),
            rounds=experiment.rounds,
            dropout=systems.dropout,
            deadline=systems.deadline,
            overcommit=systems.overcommit,
            idle_time=systems.idle_time,
            model_bytes=num_bytes([start]),
            epochs=algorithm.local_training(experiment.training).epochs,
        )
        invited = min(clock.invited(k), federation.num_clients)
        width = sum(start[name].numel() for name in engine.trainable)
        local = algorithm.local_training(experiment.training)
        census = Census(
            federation.num_samples, federation.num_classes, invited, histogram, clock.epochs, width,
            batch_size=local.batch_size, rounds=experiment.rounds,
        )  # fmt: skip
        selector.setup(census)
        clients = partial(_portrait, federation, clock, experiment.rounds)
        game = Game(seed, k, clock, selector, algorithm, engine, start, clients)
        yield game, public.fingerprint
    finally:
        engine.close()


def _portrait(federation: "Federation", clock: "Clock", rounds: int) -> Portrait:
    from fedcohort.federation.survey import portrait

    return Portrait(federation.classes, portrait(federation, clock, rounds))


def find_run(cell: Cell, given: Given, runs: str | Path) -> Run | None:
    """The run directory of a cell, whatever name it was made under; None if there is none yet.

    Where the plan was left to a measurement, a run by any plan is one of this cell: a finished one, if there are two.
    """
    folder = Path(runs)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--runs {folder}: is not a directory; give a directory that can be written")
    cell = _here(cell)
    plans = ("threads", "stacked") if cell.experiment.engine.plan == "auto" else (cell.experiment.engine.plan,)
    found = []
    for plan in plans:
        key = _with_plan(cell, plan).experiment.key(given.key())
        paths = [path for path in sorted(folder.glob(f"*-{key}")) if (path / "run.sqlite").exists()]
        found += [Run(path) for path in paths[:1]]
    return next((run for run in found if run.finished), found[0] if found else None)


def run_path(cell: Cell, given: Given, runs: str | Path) -> Path:
    """Where a new run of this cell goes: ``<runs>/<name>-<label>-seed<seed>-<hash>``."""
    words = f"{cell.experiment.name}-{cell.label}-seed{cell.seed}"
    slug = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")[:80]
    return Path(runs) / f"{slug}-{cell.experiment.key(given.key())}"


@contextmanager
def _finish_the_round() -> Iterator[threading.Event]:
    """Ctrl-C sets the event instead of breaking the round; a second one breaks it."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask_to_stop(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask_to_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _same_data(record: Run, fingerprint: str, experiment: Experiment) -> None:
    """A run goes on, and is opened again, only with the data that it was begun on."""
    begun = record.meta["data"]
    if begun != fingerprint:
        raise UsageError(
            f"{record.path}: was begun on other data than {experiment.data.name!r} now gives (fingerprint {begun[:12]}, "
            f"now {fingerprint[:12]}); delete the directory to start again, or use another --runs directory"
        )


def _identity(given: Any) -> str:
    """What of an object from Python decides results: its class or function as written, its values, and a module's weights."""
    if isinstance(given, partial):
        bound = [given.args, sorted(given.keywords.items())]
        return f"partial({_identity(given.func)}, {bound!r})"
    if inspect.isfunction(given):
        cells = [cell.cell_contents for cell in given.__closure__ or ()]
        inside = [_identity(value) if callable(value) else repr(value) for value in cells]
        return f"{given.__module__}.{given.__qualname__}:{_source(given)}:{inside}:{given.__defaults__!r}:{given.__kwdefaults__!r}"
    kind = given if isinstance(given, type) else type(given)
    written = [_source(base) for base in kind.__mro__ if not base.__module__.startswith(("builtins", "torch.", "abc"))]
    name = f"{kind.__module__}.{kind.__qualname__}:{written}"
    if isinstance(given, type):
        return name
    state = getattr(given, "named_parameters", None)
    if state is None:
        return f"{name}:{given!r}"
    digest = hashlib.sha256(repr(given).encode())
    for part in given.modules():
        digest.update(_source(type(part)).encode() if not type(part).__module__.startswith("torch.") else b"")
    for entry, value in given.state_dict().items():
        digest.update(entry.encode() + value.detach().cpu().numpy().tobytes())
    return f"{name}:{digest.hexdigest()}"


def _source(written: Any) -> str:
    """Hash of the text of a class or function; its name where there is no text, as in a console."""
    try:
        return hashlib.sha256(inspect.getsource(written).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return str(getattr(written, "__qualname__", written))


def _versions() -> dict[str, str]:
    import numpy
    import torch

    return {
        "fedcohort": version("fedcohort"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
