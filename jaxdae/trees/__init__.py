"""Trees of nodes, and recursions over them."""
