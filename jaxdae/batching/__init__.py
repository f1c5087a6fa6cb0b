"""Worlds: which axis of an array is theirs, how many there are, and on which devices they run."""
