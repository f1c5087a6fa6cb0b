"""Batches of worlds: the batch axis, the batch size, and the devices."""
