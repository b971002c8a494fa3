"""How a status looks: with Unicode, without it, and its colour."""

MARK = {"pass": ("✓", "ok", "green"), "fail": ("✗", "FAIL", "red"), "skip": ("-", "-", "dim")}
UNSEEN = ("?", "?", "yellow")
