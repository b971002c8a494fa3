"""Rules about systemd units that start an engine: what loops, what is killed too soon, what is read otherwise."""
