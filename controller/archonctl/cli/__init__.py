"""The command line: read arguments, call one function, present the value. No logic."""
