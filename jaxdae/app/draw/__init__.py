"""Plots, pictures and animations of runs."""
