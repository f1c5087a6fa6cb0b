"""Built-in tasks: each function returns a `jaxdae.envs.Task`, whose parts you can replace."""
