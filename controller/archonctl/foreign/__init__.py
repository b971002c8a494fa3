"""Readers for files that other tools made: shell scripts, systemd units, Quadlets, compose files, a running process.

Nothing is executed and nothing is guessed: what a file does not settle by itself is kept as it is written and named.
"""
