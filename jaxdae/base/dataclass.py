"""Frozen dataclasses as pytrees, and dotted paths to their leaves.

Every object of jaxdae (systems, solvers, integrators, states) is a frozen dataclass. Its array fields are
pytree leaves, and its structural fields (counts, names, index tuples) are static. `jax.grad` of a function of
such an object is therefore an object of sensitivities, and a stack of objects is a design sweep under
`jax.vmap`.

The second half of the module addresses single leaves by dotted paths, "bodies.mass" or "stabilization.alpha",
for configs, sweeps and tests.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

import jax
import jax.numpy as jnp

from jaxdae.base.callables import as_pytree
from jaxdae.base.requirements import check_field
from jaxdae.base.suggestions import brief, join_first

T = TypeVar("T")


def static(*, one_of: type | None = None, **kwargs: Any) -> Any:
    """Return a dataclass field that is structure, not data: it is part of the compiled program's identity.

    Args:
        one_of: an enumeration, or a type such as `bool`, to which the field is restricted. Other values,
            including text, raise an error in the constructor.
        **kwargs: passed to `dataclasses.field` (for example `default=3`).
    """
    return dataclasses.field(metadata={"static": True, "one_of": one_of}, **kwargs)


def function_field(**kwargs: Any) -> Any:
    """Return a dataclass field that may hold a function or a tuple of functions; other values stay unchanged.

    Pytrees with `__call__` stay unchanged, so that their numbers are leaves. A plain function becomes part of
    the program (`jax.tree_util.Partial`). A bound method of a pytree contributes the leaves of the pytree.
    Callable objects of classes that are not pytrees raise an error in the constructor.

    Args:
        **kwargs: passed to `dataclasses.field` (for example `default=None`).
    """
    return dataclasses.field(metadata={"function": True}, **kwargs)


@overload
def pytree(cls: type[T], /) -> type[T]: ...


@overload
def pytree(cls: None = None, /, *, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(static, function_field, dataclasses.field))
def pytree(cls: Any = None, /, *, kw_only: bool = False) -> Any:
    """Make a class a frozen dataclass that JAX treats as a pytree.

    Fields declared with `static()` become structure; all others are leaves (or subtrees). Instances compare
    by identity, because `==` on arrays has no truth value.

    Args:
        cls: the class; fields as in `dataclasses.dataclass`.
        kw_only: whether the generated `__init__` takes keywords only.

    Returns:
        The class itself, now a registered dataclass.

    Example:
        >>> @jaxdae.tree.pytree
        ... class Pendulum(jaxdae.System):
        ...     mass: jax.Array
        ...     name: str = jaxdae.tree.static(default="pendulum")
    """
    if cls is None:
        return lambda wrapped: pytree(wrapped, kw_only=kw_only)
    _check_choices_when_made(cls)
    cls = dataclasses.dataclass(frozen=True, eq=False, kw_only=kw_only)(cls)
    _take_functions_apart_when_made(cls)
    return jax.tree_util.register_dataclass(cls)


def _check_choices_when_made(cls: Any) -> None:
    """Give a class with fields `static(one_of=...)` a `__post_init__` that checks them, before its own.

    Only static fields can be checked there: other fields hold tracers, axis numbers and sentinels while JAX
    unflattens pytrees.
    """
    declared = {
        name: field.metadata for name, field in vars(cls).items() if isinstance(field, dataclasses.Field)
    }
    choices = {name: data["one_of"] for name, data in declared.items() if data.get("one_of") is not None}
    if not choices:
        return
    own = getattr(cls, "__post_init__", None)

    def __post_init__(self: Any) -> None:
        for name, kind in choices.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"{type(self).__name__}.{name} must be {_members(kind)}, got {brief(value)}")
        if own is not None:
            own(self)

    cls.__post_init__ = __post_init__


def _take_functions_apart_when_made(cls: Any) -> None:
    """Give a dataclass with fields `function_field()` a constructor that converts functions to pytrees.

    The fields of a frozen object are thus set only once. Defaults are not converted: they are None, or a
    pytree.
    """
    fields = [field for field in dataclasses.fields(cls) if field.init]
    functions = {field.name for field in fields if field.metadata.get("function")}
    if not functions:
        return
    places = [field.name for field in fields if not field.kw_only]
    make = cls.__init__

    def seen(self: Any, name: str, value: Any) -> Any:
        return as_pytree(value, f"{type(self).__name__}.{name}") if name in functions else value

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        placed = [seen(self, name, value) for name, value in zip(places, args, strict=False)]
        make(
            self,
            *placed,
            *args[len(places) :],
            **{name: seen(self, name, value) for name, value in kwargs.items()},
        )

    cls.__init__ = __init__


def _members(kind: type) -> str:
    """Return the valid values of a field, in words."""
    if issubclass(kind, enum.Enum):
        return f"one of {', '.join(str(member) for member in kind)}"
    return {bool: "True or False", int: "a whole number"}.get(kind, f"a {kind.__name__}")


def _step_into(tree: Any, name: str, path: str) -> Any:
    """Return the child `name` of `tree`; `path` is only for the message."""
    if dataclasses.is_dataclass(tree):
        names = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static", False)]
        if name in names:
            return getattr(tree, name)
    elif isinstance(tree, dict):
        names = [str(key) for key in tree]
        if name in names:
            return tree[_dict_key(tree, name)]
    elif isinstance(tree, list | tuple):
        names = _entry_names(tree)
        if name in names:
            return tree[names.index(name)]
    else:
        names = []
    known = join_first(names) if names else "it has no fields"
    raise KeyError(f"leaf path {brief(path)}: no {brief(name)} in {type(tree).__name__}; available: {known}")


def _dict_key(tree: dict[Any, Any], name: str) -> Any:
    """Return the key whose text is `name`; dictionary keys need not be strings."""
    return next(key for key in tree if str(key) == name)


def _entry_names(tree: list[Any] | tuple[Any, ...]) -> list[str]:
    """Return the names of the entries: fields of a named tuple, positions of any other sequence."""
    return list(getattr(tree, "_fields", ())) or [str(k) for k in range(len(tree))]


def _resolved(tree: Any, path: str) -> tuple[str, int | tuple[int, int] | None]:
    """Return the path of a leaf or subtree, and an index in it if the path addresses an element by name.

    A node with a method `named_leaf(names)` translates the rest of the path to a leaf path below it and an
    index, or returns None.
    """
    names, node = path.split("."), tree
    for depth, name in enumerate(names):
        found = node.named_leaf(names[depth:]) if hasattr(type(node), "named_leaf") else None
        if found is not None:
            return ".".join([*names[:depth], found[0]]), found[1]
        node = _step_into(node, name, path)
    return path, None


def get_leaf(tree: Any, path: str) -> Any:
    """Return the leaf (or subtree) of a pytree at a dotted path, such as "integrator.stabilization.alpha".

    Args:
        tree: any pytree of dataclasses, dictionaries, lists and tuples.
        path: field names, keys and positions joined by dots. Elements of a mechanism also accept the paths of
            configs, such as "joints.hinge.damping", "bodies.arm.mass" or "forces.spring.stiffness".

    Raises:
        KeyError: no such path; the message lists the available names at the place where the path fails.
    """
    path, index = _resolved(tree, path)
    for name in path.split("."):
        tree = _step_into(tree, name, path)
    return tree if index is None else tree[index]


def set_leaf(tree: Any, path: str, value: Any) -> Any:
    """Return a copy of a pytree with the leaf (or subtree) at a dotted path replaced.

    Args:
        tree: any pytree of dataclasses, dictionaries, lists and tuples.
        path: field names, keys and positions joined by dots.
        value: the new leaf or subtree.

    Raises:
        KeyError: no such path.
        ValueError: the path names a parameter of one element, and the value does not have its shape; or a
            number is out of the range of its field, such as a negative damping.
        TypeError: the leaf contains real numbers, and the value is text, Boolean or complex.

    Traced numbers, under `jit`, `vmap` and `grad`, cannot raise an error here: rollouts and `state_status`
    return OUT_OF_RANGE for them. Functions that use the tree also check conditions on several fields, such as
    an order of two limits, because one call replaces only one of them.
    """
    given, (path, index) = path, _resolved(tree, path)  # Its message has the whole path.
    old = get_leaf(tree, path)
    if _is_real(old) and any(map(_is_not_real, jax.tree.leaves(value))):
        raise TypeError(f"{given} must be a real number, got {brief(value)}")
    if index is not None:
        leaf = jnp.asarray(get_leaf(tree, path))
        if jnp.shape(value) != (shape := leaf[index].shape):
            raise ValueError(
                f"{given} must have shape {shape}, got {jnp.shape(value)}; values of several worlds belong "
                f"in the whole leaf, {path}"
            )
        value = leaf.at[index].set(value)
    new, (owner, _, name) = _replaced(tree, path, value), path.rpartition(".")
    stacked = jnp.ndim(value) > jnp.ndim(old) if _is_real(old) and _is_real(value) else False
    in_column = isinstance(index, tuple)
    check_field(given, get_leaf(new, owner) if owner else new, name, stacked=stacked, in_column=in_column)
    return new


def _replaced(tree: Any, path: str, value: Any) -> Any:
    """Return a copy of a pytree with the leaf (or subtree) at a leaf path replaced, without checks."""
    name, _, rest = path.partition(".")
    child = _step_into(tree, name, path)
    new = _replaced(child, rest, value) if rest else value
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(tree, **{name: new})
    if isinstance(tree, dict):
        return {**tree, _dict_key(tree, name): new}
    return _with_entry(tree, name, new)


def _is_real(leaf: Any) -> bool:
    """Return whether a leaf contains floating-point numbers."""
    return jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating)


def _is_not_real(value: Any) -> bool:
    """Return whether a value is text, Boolean or complex."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return isinstance(value, bool | str | complex) or kind in ("b", "c", "S", "U")


def _key_name(key: Any) -> str:
    """Return one step of a JAX key path as text for `get_leaf`."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _with_entry(sequence: Any, name: str, value: Any) -> Any:
    """Return the list, tuple or named tuple with one entry replaced."""
    items = list(sequence)
    items[_entry_names(sequence).index(name)] = value
    return type(sequence)(*items) if hasattr(sequence, "_fields") else type(sequence)(items)


def leaf_paths(tree: Any) -> tuple[str, ...]:
    """Return the dotted paths of all leaves of a pytree, in the order of `jax.tree.leaves`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return tuple(".".join(_key_name(key) for key in path) for path, _ in flat)


def batch_axes(tree: Any, *paths: str) -> Any:
    """Return `in_axes` for `jax.vmap` or `batch_rollout`: axis 0 at the named leaves, None at all others.

    Args:
        tree: the pytree, with the named leaves stacked along a leading world axis.
        *paths: dotted paths of the leaves (or subtrees) that differ between worlds.

    Raises:
        KeyError: a path does not exist.
    """
    axes = jax.tree.map(lambda _: None, tree)
    for path in (_resolved(tree, path)[0] for path in paths):
        axes = _replaced(axes, path, jax.tree.map(lambda _: 0, get_leaf(tree, path)))
    return axes
