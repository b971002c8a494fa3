"""The samples of the board as prometheus-client's metric families, in the order of ``metrics.toml``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from archonctl.observe import catalogue
from archonctl.observe.board import Board
from archonctl.observe.values import Sample


class BoardCollector(Collector):
    """Reads the board; no scrape ever waits for an engine, a disk or systemd."""

    def __init__(self, board: Board, always: Iterable[Sample] = ()) -> None:
        """``always``: samples that no look brings."""
        self._board = board
        self._always = tuple(always)

    def by_metric(self) -> Iterator[tuple[str, list[Sample]]]:
        """The samples of each metric that has some."""
        by_name: dict[str, list[Sample]] = {}
        for each in (*self._always, *self._board.samples()):
            by_name.setdefault(each.metric, []).append(each)
        return ((name, by_name[name]) for name in catalogue.metrics() if name in by_name)

    @staticmethod
    def family(name: str, samples: Iterable[Sample]) -> Metric:
        """One metric of the table with its samples."""
        return _family(catalogue.metrics()[name], samples)

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a sample."""
        return (self.family(name, samples) for name, samples in self.by_metric())

    def describe(self) -> Iterator[Metric]:
        """What may come: asked once, when the collector is registered."""
        return (_family(row, ()) for row in catalogue.metrics().values())


def _family(row: catalogue.Metric, samples: Iterable[Sample]) -> Metric:
    kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for each in samples:
        family.add_metric(each.labels, each.value)
    return family
