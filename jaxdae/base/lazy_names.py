"""Packages whose public names are imported at their first use."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def lazy_names(package: str, names: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that imports its public names at their first use.

    Args:
        package: the name of the package.
        names: the name of the module that imports the public names and lists them in `__all__`.
    """

    def load() -> dict[str, Any]:
        module = importlib.import_module(names)
        loaded = {name: getattr(module, name) for name in ("__all__", *module.__all__)}
        vars(sys.modules[package]).update(loaded)
        return loaded

    def attribute(name: str) -> Any:
        if importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        if name == "__all__" or not name.startswith("_"):
            loaded = load()
            if name in loaded:
                return loaded[name]
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)

    def listed() -> list[str]:
        load()
        return sorted(vars(sys.modules[package]))

    return attribute, listed
