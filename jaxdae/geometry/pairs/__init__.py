"""Contact points of pairs of shapes."""
