"""Knobs of every engine by version: the tables, and the command lines and environments that they judge."""

from archonctl.engines.knobs.check import check_argv, check_env
from archonctl.engines.knobs.render import render
from archonctl.engines.knobs.row import Deprecated, Knob, KnobType, Managed, Retired, first_long
from archonctl.engines.knobs.table import Edition, Found, KnobTable, edition, load_folder, load_table, table_names
from archonctl.engines.knobs.verdict import ArgvFinding, Open

__all__ = [
    "ArgvFinding",
    "Deprecated",
    "Edition",
    "Found",
    "Knob",
    "KnobTable",
    "KnobType",
    "Managed",
    "Open",
    "Retired",
    "check_argv",
    "check_env",
    "edition",
    "first_long",
    "load_folder",
    "load_table",
    "render",
    "table_names",
]
