"""Tasks that jaxdae ships: each is a function that returns a `jaxdae.envs.Task`, whose parts may be replaced."""
