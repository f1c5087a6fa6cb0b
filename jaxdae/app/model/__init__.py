"""Objects of the library from a config: mechanism, laws, integrator, loss."""
