"""Geometry that knows no mechanics: rotations, and the cosine and sine of an angle together."""
