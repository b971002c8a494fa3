"""Real requests against a running engine, and the verdict that they and the ledger allow."""
