"""Fits: `jaxdae tune` and `jaxdae optimize`."""
