"""Read-only checks of a machine and of the endpoints declared for it: pass, warn, fail or skip, each with both numbers.

``checks.toml`` is the table of checks, ``run.run_checks`` runs them, each in a process of its own with a deadline.
"""
