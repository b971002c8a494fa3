"""mistral.rs: what is known of its boot log."""
