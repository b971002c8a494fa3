"""Classed memory: intervals, demands and capacities. Knows nothing of engines or hosts."""
