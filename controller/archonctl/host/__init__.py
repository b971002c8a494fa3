"""What the machine has: declared profiles and what can be read from this kernel."""
