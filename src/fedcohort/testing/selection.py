"""The contract of a selection strategy."""

import json
import math
from collections.abc import Callable, Iterable

import numpy as np

from fedcohort.core.arrays import Indices, Values, read_only
from fedcohort.core.errors import UsageError, nearest
from fedcohort.core.files.state_files import pack, unpack
from fedcohort.core.random_streams import rng
from fedcohort.core.user_code.unseeded_draws import drawn_since, generator_states, is_own
from fedcohort.core.words.formatted_values import in_words
from fedcohort.core.words.report_names import MEASURED_BY_ALL
from fedcohort.selection import Cohort, Outcome, Question, Round, Selector, Why, choose
from fedcohort.selection.strategies.all_available import All
from fedcohort.testing.base import check_card, check_described, during, new_from, require
from fedcohort.testing.selection_worlds import (
    HALF,
    JOINING,
    ROUNDS,
    WORLDS,
    World,
    census_of,
    frozen,
    outcome_of,
    reported_by_rule,
)

__all__ = ["check_selector"]

NEEDS = {"histogram", "validation", "holdout", "update_norm", "update"}


def check_selector(make: Callable[[], Selector]) -> None:
    """Check the contract of :class:`fedcohort.selection.Selector`.

    The strategy selects in small simulated federations: few or no clients available, no answers, ties, zeros, failures, clients
    without samples, k = m, a k that changes, one client. It must select distinct available clients in the right number, with reasons;
    the same generator must give the same selection, without draws from other generators; a resumed strategy must continue as if it had
    not stopped; the strategy must not change its inputs, and must read reports that clients send, also those of its stopping rule; and
    it must take in clients that join, or refuse them and stay as it was.

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
        complaint = f"{where}: the same generators gave another selection; draw from round.rng only"
        require(again == straight, f"{complaint}, and keep nothing outside of self")
        half = _ready(make, world)
        _play(half, world, range(1, HALF + 1))
        resumed = _ready(make, world)
        with during(f"{where}: saving and loading its state"):
            saved = pack(half.state_dict())
            resumed.load_state_dict(unpack(saved))
            require(pack(resumed.state_dict()) == saved, f"{where}: loading its state and saving it again changes it")
        rest = _play(resumed, world, range(HALF + 1, ROUNDS + 1), after=f", resumed after round {HALF}")
        complaint = f"{where}: resumed after round {HALF}, it selects {rest} instead of {straight[HALF:]}"
        complaint += "; state_dict() must hold everything that select() uses, each array once, and as copies of what it was given"
        require(rest == straight[HALF:], complaint)
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
        selector.setup(census_of(selector, world, joined=False))
    complaint = f"{type(selector).__name__}: setup does not set self.census; call super().setup(census) first"
    require(hasattr(selector, "census"), complaint)
    return selector


def _check_joining(make: Callable[[], Selector]) -> None:
    """Check that the strategy goes on with clients that join, or refuses them and stays as it was."""
    selector, world = _ready(make, JOINING), JOINING
    where = f"{type(selector).__name__}, {world.name}"
    _play(selector, world, range(1, HALF + 1))
    before, census = pack(selector.state_dict()), census_of(selector, world, joined=True)
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


def _play(
    selector: Selector, world: World, rounds: Iterable[int], validation: bool = False, after: str = ""
) -> list[list[int]]:
    """Play rounds and check each selection.

    Args:
        selector: the strategy.
        world: the federation.
        rounds: numbers of the rounds.
        validation: whether the strategy gets validation results even without needing them.
        after: what happened before the rounds, for complaints.
    """
    picks = []
    known_times = np.full(
        (3, world.m), np.nan
    )  # one array in all rounds, as in a run: it changes when times are measured
    for t in rounds:
        where = f"{type(selector).__name__}, {world.name}{after}, round {t}"
        available = frozen(np.array([*world.present(t, world.m)], dtype=np.int64))
        durations = rng(0, "contract-durations", t).uniform(1, 9, world.m)
        durations[:: 1 if t == 1 else 3] = np.nan
        durations[world.m - (world.late if t <= HALF else 0) :] = np.nan  # never measured before they join
        if world.alike:
            durations[:] = 5.0
        asked: list[Question] = []
        ask = _asking(world, t, available, asked, where)
        k = min(world.number_to_select(t), len(available))
        known_times[:] = durations, 0.8 * durations, 0.2 * durations
        whole, computing, sending = map(read_only, known_times)
        round_ = Round(t, k, available, rng(0, "select", t), 10.0 * t, whole, ask, computing, sending)
        before = generator_states()
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
        outcome = outcome_of(selector, world, t, cohort, where, validation or "validation" in selector.needs)
        with during(f"{where}: observe"):
            selector.observe(outcome)
        drawn = drawn_since(before, generator_states())
        require(not drawn or not is_own(selector), f"{where}: draws from {in_words(drawn)}; draw from round.rng only")
        _check_reports(selector, outcome, where)
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
        answers: Values = frozen(values[:, 0] if question.numbers == 1 else values)
        return answers

    return ask


def _check_reports(selector: Selector, outcome: Outcome, where: str) -> None:
    """Check that clients can send what the strategy reads. Without clients, there is no stopping rule whose reports it could read."""
    if not len(outcome.cohort):
        return
    of_rule = (
        {"epochs", *reported_by_rule(selector, outcome.cohort, where)} if outcome.cohort.stop is not None else set()
    )
    known = (MEASURED_BY_ALL - {"update", "update_norm", "epochs"}) | of_rule | (selector.needs & MEASURED_BY_ALL)
    for name in sorted(outcome.billed - known):
        declared = f"declare needs = {{{name!r}}}" if name in ("update", "update_norm") else nearest(name, known)
        require(False, f"{where}: billed_report({name!r}): no client reports it; {declared}")


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
