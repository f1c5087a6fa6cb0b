"""What holds in every test: double precision, strict dtype promotion, and signatures that are checked at run time.

The import hook must be set before the first import of `jaxdae`, so it stands here and not in a fixture.
"""

import gc
import pathlib
import sys
import types
import typing

import jax
import pytest
from beartype import beartype
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
# A float32 constant that meets a float64 state is a mistake in the library, not something to convert silently.
jax.config.update("jax_numpy_dtype_promotion", "strict")


def _check(function: typing.Any) -> typing.Any:
    """Returns the function with its types checked; protocols of its module are made fit for isinstance() before."""
    for value in vars(sys.modules[function.__module__]).values():
        if isinstance(value, type) and getattr(value, "_is_protocol", False) and value is not typing.Protocol:
            typing.runtime_checkable(value)
    return beartype(function)


# jaxtyping checks the shapes and dtypes in the annotations of the library, beartype all other types. The hook takes
# the name of an importable function.
sys.modules["_jaxdae_typechecker"] = types.ModuleType("_jaxdae_typechecker")
sys.modules["_jaxdae_typechecker"].check = _check
install_import_hook("jaxdae", "_jaxdae_typechecker.check")

# `import problems` in test modules; with --import-mode=importlib pytest itself leaves sys.path alone.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_end_with_their_module():
    """Every compiled program holds some memory mappings, of which Linux allows a process 65530: beyond, LLVM crashes."""
    yield
    jax.clear_caches()
    gc.collect()
