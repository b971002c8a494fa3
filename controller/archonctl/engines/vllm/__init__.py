"""vLLM: its cache law, its boot log, and a declaration planned and rendered by them."""
