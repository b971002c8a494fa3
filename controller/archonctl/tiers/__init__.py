"""Placement of KV cache under pressure: which copy is kept, moved down a tier, or dropped, and the mover itself."""
