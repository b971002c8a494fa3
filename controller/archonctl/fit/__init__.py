"""Which quant of a model runs and fits on which card, by the laws of the plan."""

from archonctl.fit.values import Ask, Choice, FitResult, Refusal
from archonctl.fit.walk import verdict
from archonctl.fit.ways import fit

__all__ = ["Ask", "Choice", "FitResult", "Refusal", "fit", "verdict"]
