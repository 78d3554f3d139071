"""Runs as charts read them."""

from pathlib import Path

from fedcohort.report.charts.accuracy import accuracy
from fedcohort.report.data.report_data import gather
from fedcohort.report.figures.chart_style import PAGE
from tests.records import exchange, played, written


def test_bytes_are_those_up_to_each_round(tmp_path: Path) -> None:
    """Rounds without any exchange add nothing, and are where those before them were."""
    ledgers = [[], [exchange(100, 10)], [], [exchange(200, 20), exchange(3000, 300, "LocalLoss")]]
    rounds = [
        played(t, ledger=ledger, test_accuracy=0.1 * t, admitted=0, selected=0)
        for t, ledger in enumerate(ledgers, start=1)
    ]
    story = gather([written(tmp_path / "run", rounds)])
    (one,) = story.first
    assert one.bytes.tolist() == [0, 110, 110, 3630]
    figure = accuracy(story, PAGE)
    assert figure is not None
    assert figure.data["accuracy_bytes"]["x"].tolist() == [0, 110, 110, 3630]
