"""vLLM: what is known of its boot log."""
