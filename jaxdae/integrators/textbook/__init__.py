"""Textbook integrators; `jaxdae.textbook` lists them."""
