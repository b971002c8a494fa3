"""Which quant of a model runs and fits on which card, by the laws of the plan."""
