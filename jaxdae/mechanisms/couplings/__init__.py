"""Couplings of joint coordinates: relations and weighted sums."""
