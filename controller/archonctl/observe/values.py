"""What a look brings: samples of the metrics of ``metrics.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.observe.catalogue import metrics


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric; ``labels`` are the values of its labels, in the order of the table."""

    metric: str
    labels: tuple[str, ...]
    value: float


def sample(metric: str, *labels: object, value: float) -> Sample:
    """A sample with as many labels as the table says. Raises KeyError and ValueError for a defect of ours."""
    row = metrics()[metric]
    if len(labels) != len(row.labels):
        raise ValueError(f"{metric} has the labels {row.labels}, got {labels}")
    return Sample(metric, tuple("" if each is None else str(each) for each in labels), float(value))


def one_hot(metric: str, endpoint: str, choices: tuple[str, ...], chosen: str) -> list[Sample]:
    """1 for what is the case, 0 for all else it might be."""
    return [sample(metric, endpoint, each, value=each == chosen) for each in choices]
