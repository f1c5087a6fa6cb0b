"""Viewing and exporting the results of runs."""
