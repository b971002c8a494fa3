"""SGLang: what is known of its boot log."""
