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

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a sample."""
        by_name: dict[str, list[Sample]] = {}
        for each in (*self._always, *self._board.samples()):
            by_name.setdefault(each.metric, []).append(each)
        for row in catalogue.metrics().values():
            if found := by_name.get(row.name):
                yield _family(row, found)

    def describe(self) -> Iterator[Metric]:
        """What may come: asked once, when the collector is registered."""
        return (_family(row, ()) for row in catalogue.metrics().values())


def _family(row: catalogue.Metric, samples: Iterable[Sample]) -> Metric:
    kind = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for each in samples:
        family.add_metric(each.labels, each.value)
    return family
