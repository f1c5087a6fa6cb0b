"""Geometry without mechanics: rotations, frames, screws, terrains, and trigonometric functions."""
