"""Knobs of every engine by version: the tables, and the command lines and environments that they judge."""

from archonctl.engines.knobs.render import render
from archonctl.engines.knobs.row import Deprecated, Knob, KnobType, Managed, Retired, first_long
from archonctl.engines.knobs.table import Edition, Found, KnobTable, edition, load_folder, load_table

__all__ = [
    "Deprecated",
    "Edition",
    "Found",
    "Knob",
    "KnobTable",
    "KnobType",
    "Managed",
    "Retired",
    "edition",
    "first_long",
    "load_folder",
    "load_table",
    "render",
]
