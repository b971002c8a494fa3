"""What routers and Prometheus are told of a fleet: who is in rotation, with which weight, and why others are not."""
