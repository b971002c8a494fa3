"""The contract at request time: a proxy that admits what the verified capacity can hold, and queues or refuses the rest."""
