"""Start, follow, verify, stop: the only room that owns processes."""
