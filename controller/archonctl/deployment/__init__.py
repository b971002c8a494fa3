"""What is wanted: endpoint declarations, where they come from and which one is meant."""
