"""Declaration, host and model in; capacity, verdict and levers out."""
