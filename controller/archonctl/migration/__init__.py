"""From the declaration of one engine version to that of another: what goes, what is new, and what still holds."""
