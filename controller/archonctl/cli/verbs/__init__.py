"""One module a verb: call one function of a room, present its value, return the exit code."""
