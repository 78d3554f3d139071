"""The contract of a selection strategy."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedcohort.core.arrays import Indices, Values
from fedcohort.core.errors import UsageError
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.core.random_streams import rng
from fedcohort.selection import Census, Cohort, Outcome, Question, Round, Selector, Why, choose
from fedcohort.selection.strategies.all_available import All
from fedcohort.testing.base import check_card, check_described, during, new_from, require

__all__ = ["check_selector"]

ROUNDS = 12
HALF = ROUNDS // 2
NEEDS = {"histogram", "validation", "holdout", "update_norm", "update"}
WIDTH = 7
"""Length of the updates."""


@dataclass(frozen=True)
class World:
    """A simulated federation for a strategy. It is a function of the round, so that a resumed run gets the same federation."""

    name: str
    m: int = 12
    k: int = 3
    present: Callable[[int, int], Iterable[int]] = lambda t, m: (i for i in range(m) if (i + t) % 5)
    """The available clients of round t, of m clients."""
    fails: Callable[[int], bool] = lambda _: False
    """Whether a client always fails."""
    silent: bool = False
    """Whether answers, reports and accuracies are NaN or infinite."""
    alike: bool = False
    """Whether all clients and rounds are the same."""
    value: float = 1.0
    """The value of every answer and report if all clients are the same."""
    empty: int = 0
    """Every ``empty``-th client has no samples and is never available (R7); 0 means that all have samples."""
    histogram: bool = True
    """Whether label counts differ between clients; otherwise all samples have one class."""
    late: int = 0
    """The last ``late`` clients have no samples until they join, after half of the rounds."""


WORLDS = (
    World("an ordinary run"),
    World("few clients available", present=lambda t, m: range(t % 5) if t % 3 else range(m)),
    World("no client answers", silent=True),
    World(
        "no client available until round 4, and in round 7", present=lambda t, m: range(m if t > 3 and t != 7 else 0)
    ),
    World("all clients alike", alike=True),
    World("all answers and reports are 0", alike=True, value=0.0),
    World("clients without samples", empty=4, present=lambda _, m: (i for i in range(m) if i % 4)),
    World("a single class", histogram=False),
    World("client 0 always fails", fails=lambda client: client == 0, present=lambda _, m: range(m)),
    World("every client always fails", fails=lambda _: True),
    World("k = m", k=12, present=lambda _, m: range(m)),
    World("k = m - 1", k=11, present=lambda _, m: range(m)),
    World("one client", m=1, k=1, present=lambda _, m: range(m)),
    World("one client of many available", present=lambda t, m: [t % m]),
)
JOINING = World("clients join", late=3, present=lambda t, m: range(m if t > HALF else m - 3))


def check_selector(make: Callable[[], Selector]) -> None:
    """Check the contract of :class:`fedcohort.selection.Selector`.

    The strategy selects in small simulated federations: few or no clients available, no answers, ties, zeros, failures, clients
    without samples, k = m, one client. It must select distinct available clients in the right number, with reasons; the same generator
    must give the same selection; a resumed strategy must continue as if it had not stopped; the strategy must not change its inputs;
    and it must take in clients that join, or refuse them and stay as it was.

    Args:
        make: returns a new strategy.

    Raises:
        AssertionError: the contract is broken; the message says where.
    """
    selector = new_from(make)
    check_described(selector)
    check_card(selector)
    unknown = sorted(selector.needs - NEEDS)
    require(not unknown, f"{type(selector).__name__}.needs: {unknown} are unknown; valid are {sorted(NEEDS)}")
    unknown = sorted(selector.gives - {"inclusion", "weights"})
    require(not unknown, f"{type(selector).__name__}.gives: {unknown} are unknown; valid are inclusion and weights")
    for world in WORLDS:
        where = f"{type(selector).__name__}, {world.name}"
        straight = _play(_ready(make, world), world, range(1, ROUNDS + 1))
        again = _play(_ready(make, world), world, range(1, ROUNDS + 1))
        require(again == straight, f"{where}: the same generators gave another selection; draw from round.rng only")
        half = _ready(make, world)
        _play(half, world, range(1, HALF + 1))
        resumed = _ready(make, world)
        with during(f"{where}: saving and loading its state"):
            saved = pack(half.state_dict())
            resumed.load_state_dict(unpack(saved))
            require(pack(resumed.state_dict()) == saved, f"{where}: loading its state and saving it again changes it")
        rest = _play(resumed, world, range(HALF + 1, ROUNDS + 1))
        complaint = f"{where}: resumed after round {HALF}, it selects {rest} instead of {straight[HALF:]}"
        require(rest == straight[HALF:], f"{complaint}; state_dict() must hold everything that select() uses")
    _check_joining(make)
    if "validation" not in selector.needs:
        validated, unvalidated = _ready(make, WORLDS[0]), _ready(make, WORLDS[0])
        rounds = range(1, ROUNDS + 1)
        same = _play(validated, WORLDS[0], rounds, validation=True) == _play(unvalidated, WORLDS[0], rounds)
        require(
            same and pack(validated.state_dict()) == pack(unvalidated.state_dict()),
            f"{type(selector).__name__}: learns from validation, which it receives only with 'validation' in needs",
        )


def _ready(make: Callable[[], Selector], world: World) -> Selector:
    selector = make()
    with during(f"{type(selector).__name__}, {world.name}: setup"):
        selector.setup(_census(selector, world, joined=False))
    complaint = f"{type(selector).__name__}: setup does not set self.census; call super().setup(census) first"
    require(hasattr(selector, "census"), complaint)
    return selector


def _census(selector: Selector, world: World, *, joined: bool) -> Census:
    """The clients of a world, with those that join or without them."""
    sizes = np.full(world.m, 20) if world.alike else rng(0, "contract-sizes").integers(10, 60, world.m)
    if world.empty:
        sizes[:: world.empty] = 0
    if world.late and not joined:
        sizes[-world.late :] = 0
    histogram = np.stack([sizes // 2, sizes - sizes // 2, np.zeros_like(sizes)], axis=1)
    if not world.histogram:
        histogram = np.stack([np.zeros_like(sizes), sizes, np.zeros_like(sizes)], axis=1)
    elif not world.alike:
        histogram[::2] = histogram[::2, ::-1]
    shown = _frozen(histogram) if "histogram" in selector.needs else None
    return Census(_frozen(sizes), 3, world.k, shown, num_parameters=WIDTH)


def _check_joining(make: Callable[[], Selector]) -> None:
    """Check that the strategy goes on with clients that join, or refuses them and stays as it was."""
    selector, world = _ready(make, JOINING), JOINING
    where = f"{type(selector).__name__}, {world.name}"
    _play(selector, world, range(1, HALF + 1))
    before, census = pack(selector.state_dict()), _census(selector, world, joined=True)
    try:
        selector.extend(census)
    except UsageError:
        require(pack(selector.state_dict()) == before, f"{where}: extend refuses, and has changed the state")
        return
    require(selector.census is census, f"{where}: extend does not set self.census; call super().extend(census)")
    resumed = make()
    resumed.setup(census)
    resumed.load_state_dict(unpack(pack(selector.state_dict())))
    rest = range(HALF + 1, ROUNDS + 1)
    same = _play(resumed, world, rest) == _play(selector, world, rest)
    require(
        same, f"{where}: resumed after extend, it selects other clients; state_dict() must hold all that select() uses"
    )


def _play(selector: Selector, world: World, rounds: Iterable[int], validation: bool = False) -> list[list[int]]:
    """Play rounds and check each selection; with ``validation``, the strategy gets validation results even without needing them."""
    picks = []
    for t in rounds:
        where = f"{type(selector).__name__}, {world.name}, round {t}"
        available = _frozen(np.array([*world.present(t, world.m)], dtype=np.int64))
        durations = rng(0, "contract-durations", t).uniform(1, 9, world.m)
        durations[:: 1 if t == 1 else 3] = np.nan
        durations[world.m - (world.late if t <= HALF else 0) :] = np.nan  # never measured before they join
        if world.alike:
            durations[:] = 5.0
        asked: list[Question] = []
        ask = _asking(world, t, available, asked, where)
        k = min(world.k, len(available))
        known = _frozen(durations), ask, _frozen(0.8 * durations), _frozen(0.2 * durations)
        round_ = Round(t, k, available, rng(0, "select", t), 10.0 * t, *known)
        with during(f"{where}: select"):
            cohort = choose(selector, round_)
        _check_size(cohort, round_, selector, where)
        _check_aligned(cohort, where)
        missing = [name for name in selector.gives if len(cohort) and getattr(cohort, name, None) is None]
        require(
            not missing, f"{where}: gives = {sorted(selector.gives)}, but the cohort has no {' and no '.join(missing)}"
        )
        _check_why(cohort, available, where)
        undeclared = asked and "nothing" in (selector.card.asks, selector.card.discloses)
        require(
            not undeclared, f"{where}: the strategy asks clients, but its card says that it asks or discloses nothing"
        )
        outcome = _outcome(selector, world, t, cohort, where, validation or "validation" in selector.needs)
        with during(f"{where}: observe"):
            selector.observe(outcome)
        picks.append(cohort.clients.tolist())
    return picks


def _asking(
    world: World, t: int, available: Indices, asked: list[Question], where: str
) -> Callable[[Question, Indices], Values]:
    def ask(question: Question, clients: Indices) -> Values:
        """Answer a question; check that it may be asked, and that it can be sent to another process."""
        call = f"{where}: ask({question!r})"
        require(np.isin(clients, available).all(), f"{call}: asks clients that are not available")
        carried = Question.from_json(json.loads(json.dumps(question.to_json())))
        require(carried == question, f"{call}: the question changes in to_json and from_json")
        asked.append(question)
        values: Values = rng(0, f"contract-{question.kind}", t).uniform(0, 3, (world.m, question.numbers))[clients]
        if world.alike:
            values[:] = world.value
        if world.silent:
            values[:] = np.resize([np.nan, np.inf, np.nan, -np.inf], values.shape)
        elif t % 4 == 0:
            values[:1] = np.nan
        answers: Values = _frozen(values[:, 0] if question.numbers == 1 else values)
        return answers

    return ask


class _Reply:
    """The part of an update that a strategy may see."""

    __slots__ = ("client", "report")

    def __init__(self, client: int, report: dict[str, float]) -> None:
        self.client = client
        self.report = report


def _outcome(selector: Selector, world: World, t: int, cohort: Cohort, where: str, validation: bool) -> Outcome:
    """The result of a round, with validation measures or without."""
    n = len(cohort)
    trained = np.array([not world.fails(int(client)) for client in cohort.clients], dtype=bool)
    draw = rng(0, "contract-outcome", t)
    reports = {name: draw.uniform(0, 2, world.m)[cohort.clients] for name in ("loss", "square_loss", "accuracy")}
    reports |= {"samples": np.full(n, 20.0), "steps": np.full(n, 5.0)}
    if "update_norm" in selector.needs:
        reports["update_norm"] = draw.uniform(0, 2, world.m)[cohort.clients]
    if "update" in selector.needs:
        reports["update"] = draw.normal(size=(world.m, WIDTH))[cohort.clients]
    if cohort.stop is not None:
        quantiles = draw.uniform(0, 2, world.m)[cohort.clients]
        reports |= {"q_hat": quantiles, "done": (quantiles < 0.5).astype(np.float64), "epochs": np.full(n, 2.0)}
    for values in reports.values():
        if world.alike:
            values[:] = world.value
        values[~trained] = np.nan
    if world.silent:
        reports = {"update": np.full((n, WIDTH), np.nan)} if "update" in selector.needs else {}
    accuracy = 0.5 if world.alike else math.nan if world.silent else float(draw.uniform())
    admitted = _admitted(selector, cohort, trained, reports, where)
    return Outcome(
        t=t,
        cohort=cohort,
        trained=_frozen(trained),
        admitted=_frozen(np.isin(cohort.clients, admitted)),
        reports={name: _frozen(values) for name, values in reports.items()},
        durations=_frozen(np.full(n, 5.0) if world.alike else draw.uniform(1, 9, n)),
        duration=9.0,
        accuracy=accuracy if validation else math.nan,
        class_accuracy=_frozen(np.array([accuracy, accuracy / 2, np.nan] if validation else [])),
        validation_losses=_frozen(np.full(5 if validation else 0, accuracy)),
    )


def _admitted(
    selector: Selector, cohort: Cohort, trained: np.ndarray, reports: dict[str, Values], where: str
) -> list[int]:
    """The clients that the strategy admits, in order."""
    replies = [
        _Reply(int(client), {name: float(v[i]) for name, v in reports.items() if v.ndim == 1 and np.isfinite(v[i])})
        for i, client in enumerate(cohort.clients)
        if trained[i]
    ]
    with during(f"{where}: admit"):
        admitted = list(selector.admit(iter(replies)))
    positions = [next((i for i, reply in enumerate(replies) if reply is passed), -1) for passed in admitted]
    fine = -1 not in positions and positions == sorted(set(positions))
    require(fine, f"{where}: admit must pass on the given updates, in their order")
    return [reply.client for reply in admitted]


def _check_size(cohort: Cohort, round_: Round, selector: Selector, where: str) -> None:
    n, available = len(cohort), len(round_.available)
    if isinstance(selector, All):
        require(n == available, f"{where}: {n} of {available} available clients; must select all")
    elif cohort.multiplicity is not None and available > round_.k:
        draws = int(cohort.multiplicity.sum())
        require(draws == round_.k or selector.variable_size, f"{where}: {draws} draws instead of k = {round_.k}")
    elif not selector.variable_size:
        require(
            n == round_.k,
            f"{where}: {n} clients, not min(k, available) = {round_.k}; set variable_size if that is intended",
        )


def _check_aligned(cohort: Cohort, where: str) -> None:
    limits = {
        "multiplicity": ("iu", 1, math.inf),
        "inclusion": ("f", 1e-12, 1 + 1e-9),
        "weights": ("f", 0, math.inf),
        "epochs": ("iu", 1, math.inf),
        "share": ("f", 0, 1),
    }
    for name, (kinds, low, high) in limits.items():
        values = getattr(cohort, name)
        if values is not None:
            fine = values.dtype.kind in kinds and bool((np.isfinite(values) & (values >= low) & (values <= high)).all())
            require(fine, f"{where}: Cohort.{name} = {values}: must lie between {low:g} and {high:g}")
    if cohort.stop is not None:
        with during(f"{where}: Cohort.stop = {cohort.stop}: must be plain data"):
            require("rule" in json.loads(json.dumps(dict(cohort.stop))), f"{where}: Cohort.stop has no 'rule'")


def _check_why(cohort: Cohort, available: Indices, where: str) -> None:
    if not isinstance(cohort.why, Why):
        raise AssertionError(
            f"{where}: the cohort has no reasons; return Cohort(…, why=Why(candidates, scores, terms, note))"
        )
    why, candidates = cohort.why, cohort.why.candidates
    require(why.note.strip(), f"{where}: Why.note is empty; describe the kind of choice")
    require(len(np.unique(candidates)) == len(candidates), f"{where}: Why.candidates has a client twice")
    require(np.isin(candidates, available).all(), f"{where}: Why.candidates has clients that are not available")
    require(np.isin(cohort.clients, candidates).all(), f"{where}: Why.candidates lacks clients that were selected")
    for name, values in {"scores": why.scores, **why.terms}.items():
        fine = values.shape == candidates.shape and values.dtype.kind == "f"
        actual = f"{values.dtype} {list(values.shape)}"
        require(fine, f"{where}: Why {name} is {actual}; must be one float for each of {len(candidates)} candidates")


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only copy, because a strategy must not change its inputs."""
    array = np.array(array)
    array.setflags(write=False)
    return array
