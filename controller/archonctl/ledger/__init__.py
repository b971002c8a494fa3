"""The engine's own boot log, read as evidence."""
