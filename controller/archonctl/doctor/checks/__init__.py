"""The checks themselves: each takes the facts of a machine (and an endpoint) and returns results; none ever raises."""
