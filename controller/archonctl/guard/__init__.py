"""The contract at request time: a proxy that admits what was verified to fit, and queues or refuses the rest."""
