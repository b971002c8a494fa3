"""What each verb takes: one module a verb, loaded for its own help and its own run only."""
