"""Beside an engine in its pod: takes the verdict of every start, and answers for it to whoever decides on traffic."""
