"""A Flower strategy that selects its clients with a strategy of FedCohort.

In every round, the selection strategy chooses among the connected clients, and can ask them questions. The wrapped Flower strategy
then sees a Grid on which only the chosen nodes are connected: it writes the training messages, and it merges the replies.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedcohort.chooser import Chooser
from fedcohort.chooser.argument_checks import at_most_one, check_selector
from fedcohort.core.errors import UsageError, nearest, shown
from fedcohort.core.files.paths import as_path, check_writable
from fedcohort.core.given_values import flag, seconds, whole_number
from fedcohort.experiment.pairings import check as check_pairing
from fedcohort.flower.exchange import ChosenGrid, TimedGrid
from fedcohort.flower.federation import FlowerClients
from fedcohort.flower.inner_strategy import (
    all_of_them,
    chain,
    check_inner,
    inner_numbers,
    inner_state,
    like,
    load_inner_state,
    waits_for,
    weight_key,
)  # fmt: skip
from fedcohort.flower.rehearsal import check as check_requirements
from fedcohort.flower.replies import as_state
from fedcohort.flower.run_record import RunRecord, hash_of
from fedcohort.flower.selected_round import SelectedRound, Weights, weighing
from fedcohort.flower.wire import KEY, instructions_for
from fedcohort.record import RoundRow
from fedcohort.selection import Selector

__all__ = ["Selecting"]

Validate = Callable[[ArrayRecord], "Mapping[str, Any] | float"]


class Selecting(Strategy):
    """Wraps a Flower strategy, and selects its clients.

    Args:
        strategy: any Flower strategy for models of a fixed shape, also one that wraps another.
        selector: any selection strategy of FedCohort.
        k: number of clients to select in a round. The inner strategy's own ``fraction_train``, ``min_train_nodes`` and
            ``min_available_nodes`` do not limit the training.
        seed: seed of the selection, ≥ 0.
        min_nodes: number of clients to wait for before the first round; those that are connected then are the clients of the run. By
            default k, or the inner strategy's ``min_available_nodes`` if it is larger.
        max_nodes: number of clients that the run has room for; those that connect after the beginning join between rounds. By
            default, no client can join.
        patience: seconds to wait for nodes and for answers to questions.
        weights: how the replies are weighted: ``n_selected`` (as they say, times the multiplicity of a client that was drawn more than
            once), ``uniform``, ``cohort`` (the selection strategy's weights) or ``unbiased`` (over the inclusion probability).
            Flower's strategies divide by the sum of the weights.
        validate: for strategies that learn from a validation set: gets the new arrays and returns the accuracy, or a mapping with
            ``accuracy``, and if they are needed ``loss``, ``class_accuracy`` [K] and ``validation_losses`` [n].
        trainable: names of the trainable arrays, for norms of updates; by default all floating-point arrays.
        epochs, batch_size: of local training, for strategies that reckon with them.
        rounds: number of rounds, if another strategy wraps this one; :meth:`start` sets it.
        runs: folder of run directories; None records nothing.
        name: name of the run.
        clock: seconds, for times of clients.
        authenticated: whether the SuperNodes authenticate themselves with registered keys. Then a name belongs to the key that it was
            first used with, also after a restart, and a client without a name is known by its key. Leave it out for a simulation and
            for SuperNodes without keys, to which Flower gives a new key at every start.

    Raises:
        UsageError: something cannot be used or combined. What clients lack is known at the beginning of the first round.
    """

    def __init__(
        self,
        strategy: Strategy,
        selector: Selector,
        k: int,
        *,
        seed: int = 0,
        min_nodes: int | None = None,
        max_nodes: int | None = None,
        patience: float = 600.0,
        weights: Weights = "n_selected",
        validate: Validate | None = None,
        trainable: Iterable[str] | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        rounds: int = 0,
        runs: str | Path | None = "runs",
        name: str = "flower",
        clock: Callable[[], float] = time.monotonic,
        authenticated: bool = False,
    ) -> None:
        check_inner(strategy)
        check_selector(selector)
        self.strategy, self.selector = strategy, selector
        self.k, self.seed = whole_number("k", k, 1), whole_number("seed", seed, 0)
        least = max(self.k, waits_for(strategy))
        self.min_nodes = whole_number("min_nodes", least if min_nodes is None else min_nodes, 1)
        self.weights, self.validate, self.runs, self.name, self.clock = weights, validate, runs, name, clock
        self.rounds, self.epochs = whole_number("rounds", rounds, 0), whole_number("epochs", epochs, 1)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.trainable = None if trainable is None else frozenset(trainable)
        if max_nodes is not None and whole_number("max_nodes", max_nodes, 1) < max(self.min_nodes, self.k):
            raise UsageError(
                f"max_nodes = {max_nodes}: must be at least {max(self.min_nodes, self.k)}, the clients of the first round"
            )
        known = flag("authenticated", authenticated)
        self.clients = FlowerClients(seconds("patience", patience), clock, authenticated=known)
        self.clients.roster.seats = max_nodes or 0
        self.chooser: Chooser | None = None
        self._weighing = weighing(weights)
        check_pairing(selector, self._weighing)
        self._record: RunRecord | None = None
        self._timeout, self._played = float("inf"), 0  # played: rounds before this process
        self._grid: TimedGrid | None = None
        self._round: SelectedRound | None = None
        self._pending: tuple[RoundRow, dict[str, Any]] | None = None
        self._arrays: ArrayRecord | None = None
        self._begun: list[dict[str, float]] = []
        self._evaluates = False

    # --- Flower's interface ------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Play all rounds; see :meth:`flwr.serverapp.strategy.Strategy.start`. A run that was interrupted continues; the result then
        has the metrics of the rounds that are left.

        The metrics ``accuracy`` and ``loss`` of ``evaluate_fn`` are the record's test results; without it, those of the clients'
        evaluation.

        Raises:
            UsageError: the strategy cannot run with these clients; raised before the first round.
        """
        self.rounds, self._timeout = whole_number("num_rounds", num_rounds, 0), timeout
        self._evaluates = evaluate_fn is not None
        self._grid = TimedGrid(grid, self.clock)
        try:
            arrays = self._begin(self._grid, initial_arrays)
            played = self._played

            def evaluate(t: int, model: ArrayRecord) -> MetricRecord | None:
                assert evaluate_fn is not None
                if played and not t:
                    return None  # the model of a run that continues is not the initial one
                metrics = evaluate_fn(t + played, model)
                if t:
                    self._commit(metrics)
                return metrics

            given = evaluate if evaluate_fn is not None else None
            result = super().start(
                self._grid, arrays, num_rounds - played, timeout, train_config, evaluate_config, given
            )
            self._commit(None)
            if not result.arrays:
                result.arrays = arrays
            if self._record is not None:
                self._record.finish(as_state(result.arrays))
        finally:
            self.close()
            self._grid, self._evaluates = None, False
        return _shifted(result, played)

    def summary(self) -> None:
        """Log the settings of the inner strategy."""
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Select the clients of the round, and let the inner strategy write the messages to them."""
        if self.chooser is None or self._played + server_round <= self.chooser.t:  # another strategy begins a run
            arrays = self._begin(grid, arrays)
        chooser, t = self._known(), self._played + server_round
        self._commit(None)
        self._arrays = arrays
        self._round = SelectedRound(
            chooser, self.clients, arrays, self._weighing, self.trainable, self.epochs, self._timeout, self.clock
        )
        cohort = self._round.select(grid)
        nodes = [self.clients.roster.node(client) for client in cohort.clients.tolist()]
        messages: list[Message] = []
        if nodes:
            chosen = ChosenGrid(grid, nodes, type(self.strategy).__name__)
            with all_of_them(self.strategy):
                messages = list(self.strategy.configure_train(t, arrays, config, chosen))
        of_node = {node: position for position, node in enumerate(nodes)}
        for message in messages:
            said = instructions_for(cohort, of_node[message.metadata.dst_node_id])
            if said is not None:
                message.content = RecordDict({**message.content, KEY: said})
        self._round.sent(messages)
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Check the replies, let the inner strategy merge the good ones in the order of the cohort, and learn from the outcome."""
        playing = self._round
        if playing is None:
            raise UsageError("aggregate_train was called before configure_train")
        seconds = self._grid.last.seconds if self._grid is not None else {}
        good = playing.received(list(replies), seconds, weight_key(self.strategy))
        arrays: ArrayRecord | None = None
        metrics: MetricRecord | None = None
        if good:
            arrays, metrics = self.strategy.aggregate_train(self._played + server_round, good)
        if arrays is not None:
            arrays = like(arrays, playing.arrays)
        self._arrays = arrays if arrays is not None else playing.arrays
        row = playing.finish(self._validated(self._arrays))
        self._pending = row, self._checkpoint()
        self._round = None
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As the inner strategy does: evaluation does not depend on the selection."""
        return self.strategy.configure_evaluate(self._played + server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """As the inner strategy does; the metrics are recorded if the server does not evaluate itself."""
        metrics = self.strategy.aggregate_evaluate(self._played + server_round, replies)
        if not self._evaluates:
            self._commit(metrics)
        return metrics

    def close(self) -> None:
        """Release the run directory; :meth:`start` does it."""
        if self._record is not None:
            self._record.close()

    # --- the run -----------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        """The run directory; None before the first round, or if nothing is recorded."""
        return None if self._record is None else self._record.path

    def _known(self) -> Chooser:
        assert self.chooser is not None
        return self.chooser

    def _begin(self, grid: Grid, arrays: ArrayRecord) -> ArrayRecord:
        """Meet the clients, check that the strategy can run with them, and open the record; returns the arrays to begin with."""
        saved, self._played, self._begun = None, 0, inner_numbers(self.strategy)
        self._round = self._pending = None  # of an earlier start that ended with an error
        self.clients.begin()
        if unknown := sorted((self.trainable or frozenset()) - set(arrays)):
            raise UsageError(
                f"trainable = {shown(unknown)}: the model has no such arrays; {nearest(unknown[0], arrays)}"
            )
        if self.runs is not None:
            check_writable(as_path(self.runs, "runs"), "runs =", folder=True)
            inner = " + ".join(type(part).__name__ for part in chain(self.strategy))
            self._record = RunRecord(
                self.runs,
                self.name,
                inner,
                self.selector,
                k=self.k,
                seed=self.seed,
                rounds=self.rounds,
                start=hash_of(arrays),
            )
            saved = self._record.saved() if self._grid is not None else None
        if saved is not None:
            self.clients.expect(saved[1]["clients"])
        self.clients.gather(grid, 1 if saved else self.min_nodes)
        if saved is not None:
            self.clients.load_state_dict(saved[1]["clients"])
        else:
            self.clients.roster.fix()
        trained = self.trainable or {name for name, array in arrays.items() if "float" in array.dtype}
        census = self.clients.census(
            self.k, needs_histogram="histogram" in self.selector.needs, rounds=self.rounds, epochs=self.epochs,
            num_parameters=sum(arrays[name].numpy().size for name in trained), batch_size=self.batch_size,
        )  # fmt: skip
        needed = check_requirements(
            self.selector, census, self.clients.roster.all_known(), validates=self.validate is not None
        )
        self.chooser = Chooser(self.selector, census, self.seed)
        self.clients.roster.takes_in = partial(self.clients.join, self.chooser, needed)
        if saved is not None:
            self._played, state = saved
            self.chooser.load_state_dict(state["chooser"])
            load_inner_state(self.strategy, state["inner"])
            arrays = ArrayRecord({name: Array(value) for name, value in state["arrays"].items()})
        if self._record is not None:
            self._record.begin(census, self.clients.roster.names, self._played)
        return arrays

    def _validated(self, arrays: ArrayRecord) -> Mapping[str, Any] | None:
        """The results on the validation set, if the selection strategy learns from them."""
        if self.validate is None:
            return None
        found = self.validate(arrays)
        return found if isinstance(found, Mapping) else {"accuracy": found}

    def _checkpoint(self) -> dict[str, Any]:
        """Everything that the next round depends on."""
        assert self._arrays is not None
        return {
            "chooser": self._known().state_dict(),
            "clients": self.clients.state_dict(),
            "inner": inner_state(self.strategy, self._begun),
            "arrays": {name: array.numpy() for name, array in self._arrays.items()},
        }

    def _commit(self, metrics: MetricRecord | None) -> None:
        """Record the last round, with the results on test data."""
        if self._pending is None or self._record is None:
            return
        (row, state), self._pending = self._pending, None
        found = {} if metrics is None else {str(name): value for name, value in metrics.items()}
        numbers = [found.get(name) for name in ("accuracy", "loss")]
        accuracy, loss = (float(x) if isinstance(x, int | float) else float("nan") for x in numbers)
        row.add_test(at_most_one("evaluate_fn: accuracy", accuracy), loss, ())
        self._record.write(row, state)
        if self._grid is None and row.round == self.rounds:
            self._record.finish({})  # the strategy outside has the final model


def _shifted(result: Result, played: int) -> Result:
    """The result of a run that was resumed, with the numbers of its rounds."""
    for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        metrics: dict[int, MetricRecord] = getattr(result, name)
        setattr(result, name, {t + played if t else 0: found for t, found in metrics.items()})
    return result
