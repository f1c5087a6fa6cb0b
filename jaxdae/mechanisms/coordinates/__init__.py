"""How bodies move with the coordinates of a mechanism, one form a file."""
