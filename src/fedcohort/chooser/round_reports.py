"""The reports of a round as a strategy sees them, from the results that a server gives."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedcohort.chooser.argument_checks import checked_update
from fedcohort.core.arrays import Values
from fedcohort.core.errors import UsageError
from fedcohort.rounds.client_result import ClientResult
from fedcohort.selection import Cohort, Selector

__all__ = ["ReportedResult", "RoundReports", "decides", "reported"]


@dataclass
class ReportedResult:
    """A result as a strategy sees it when it decides whether to admit the update: the client, and the numbers that it reported."""

    client: int
    report: dict[str, float]


def reported(cohort: Cohort, results: Mapping[int, ClientResult]) -> list[ReportedResult]:
    """The results with an update, in the order of the cohort."""
    clients = [client for client in cohort.clients.tolist() if client in results and results[client].trained]
    return [ReportedResult(client, dict(results[client].reports)) for client in clients]


def decides(selector: Selector) -> bool:
    """Whether a strategy decides which updates enter the model."""
    return type(selector).admit is not Selector.admit


class RoundReports:
    """Puts the reports of clients in the order of the cohort.

    Args:
        selector: the strategy.
        width: length of updates; 0 if it is not known before the first round that was observed.
    """

    def __init__(self, selector: Selector, width: int) -> None:
        self.strategy, self.needs, self._width = type(selector).__name__, selector.needs, width

    def of(self, cohort: Cohort, rows: list[ClientResult]) -> dict[str, Values]:
        """Reports by name, aligned with the cohort; NaN where a client did not send one."""
        reports: dict[str, Values] = {}
        for name in sorted({name for row in rows if row.trained for name in row.reports}):
            sent = [float(row.reports.get(name, math.nan)) if row.trained else math.nan for row in rows]
            reports[name] = np.array(sent, np.float64)
        if self.needs & {"update", "update_norm"}:
            self._add_updates(reports, cohort, rows)
        return reports

    def keep_length(self, results: Mapping[int, ClientResult]) -> None:
        """From now on, updates must have the length of those of a round that was observed."""
        if self._width or not self.needs & {"update", "update_norm"}:
            return
        for client, row in results.items():
            if row.trained and row.update is not None:
                self._width = len(checked_update(row.update, client, 0))
                return

    def _add_updates(self, reports: dict[str, Values], cohort: Cohort, rows: list[ClientResult]) -> None:
        """Add the updates and their norms to the reports; a norm that a client reported stays."""
        updates, width = [], self._width
        for client, row in zip(cohort.clients.tolist(), rows, strict=True):
            updates.append(update := self._update(client, row, width))
            width = width if update is None else len(update)
        if "update" in self.needs:
            reports["update"] = np.full((len(rows), width), np.nan)  # also in a round without any update
            for position, update in enumerate(updates):
                if update is not None:
                    reports["update"][position] = update
        norms = np.array([math.nan if update is None else np.linalg.norm(update) for update in updates], np.float64)
        reported = reports.get("update_norm", norms)
        reports["update_norm"] = np.where(np.isnan(reported), norms, reported)

    def _update(self, client: int, row: ClientResult, width: int) -> Values | None:
        """The update of a client as a vector; None if it did not train, or only its norm is needed and was reported."""
        if not row.trained or (row.update is None and "update" not in self.needs and "update_norm" in row.reports):
            return None
        if row.update is None:
            raise UsageError(
                f"results: client {client} has no update, but {self.strategy} needs it; give ClientResult(…, update=…)"
            )
        return checked_update(row.update, client, width)
