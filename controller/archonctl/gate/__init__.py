"""Findings with stable codes; needs neither hardware nor network."""
