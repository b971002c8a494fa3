"""lmdeploy (TurboMind): what is known of its boot log."""
