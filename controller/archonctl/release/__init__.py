"""What runs: env file, argv and unit, rendered once, content-addressed, kept for rollback."""
