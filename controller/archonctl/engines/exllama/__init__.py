"""exllamav2 and exllamav3: what is known of its boot log."""
