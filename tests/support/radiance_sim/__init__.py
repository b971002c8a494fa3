"""A SIMULATOR of the radiance engine: its process, its log and its HTTP surface; no device and no model behind them.

It follows what is public of radiance 1.0.x (flags, parser, budget table, kv report, request fields, side endpoints)
and what was measured on the archon host of 1.2.0 and 1.8.1, and computes from those facts on its own: nothing of
archonctl is imported, so that the two can disagree. Standard library only, since an engine starts with a bare
environment. Where a figure was never seen, the module that uses it says what was assumed.

It says that it is a simulator in its banner, its ``--version``, its ``Server`` header and ``/version``.

How it is told what to simulate: ``--simulate-NAME VALUE`` before the engine's own flags, else ``RADIANCE_SIM_NAME`` in
the environment (``config.py`` lists the names).
"""
