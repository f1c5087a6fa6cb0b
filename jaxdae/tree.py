"""Pytrees: dataclasses whose fields are leaves or static, and access to leaves by dotted paths."""

from jaxdae.base.dataclass import batch_axes, get_leaf, leaf_paths, pytree, set_leaf, static

__all__ = [
    "batch_axes",
    "get_leaf",
    "leaf_paths",
    "pytree",
    "set_leaf",
    "static",
]
