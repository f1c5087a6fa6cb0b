"""Dense linear algebra on small matrices, and Newton iteration."""
