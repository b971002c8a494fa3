"""What the model file needs, read from its header alone."""
