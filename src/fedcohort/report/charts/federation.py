"""Draw what a federation looks like: all figures of its clients."""

from fedcohort.report.charts.classes import class_counts, class_shares
from fedcohort.report.charts.client_traits import noise, presence, sizes, speed
from fedcohort.report.charts.shown_clients import Clients, drawn_clients
from fedcohort.report.figures.chart_style import Look
from fedcohort.report.figures.figure import Figure

__all__ = ["federation"]


def federation(clients: Clients, look: Look) -> list[Figure]:
    """All figures of a federation that there are data for."""
    drawn = drawn_clients(clients)
    figures = [
        class_counts(clients, drawn, look),
        class_shares(clients, drawn, look),
        sizes(clients, look),
        speed(clients, look),
        noise(clients, look),
        presence(clients, look),
    ]
    return [figure for figure in figures if figure is not None]
