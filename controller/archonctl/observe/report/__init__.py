"""One page to read: no script, no request to anywhere, everything on it with its source."""
