"""Identity of a run: `jaxdae` continues or merges only results with the same identity."""

import functools
import hashlib
import json
import os
import pathlib
from typing import Any

import jax

from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.runs import run_folder
from jaxdae.compile.layout import Automatic, Fused
from jaxdae.fused import Unsupported, chosen_kernel
from jaxdae.fused.call import compiler_version

_TOLD = {
    "config": "config",
    "jaxdae": "version of jaxdae",
    "code": "code of jaxdae",
    "jax": "version of JAX",
    "jaxlib": "version of jaxlib",
    "numpy": "version of NumPy",
    "scipy": "version of SciPy, whose LAPACK JAX calls on a CPU",
    "flags": "environment variable XLA_FLAGS",
    "products": "jax_default_matmul_precision",
    "backend": "kind of device",
    "devices": "number of devices of a process",
    "kernel": "kind of kernel and its compiler",
}


def identity(config: Config) -> dict[str, str]:
    """Return everything that the numbers of a run depend on: config, code, compiler and devices.

    The config includes the precision and the seed. Compiler flags may change the last bits. The precision of
    matrix products in single precision may change far more.
    """
    versions = run_folder.versions()
    told = {key: value for key, value in run_folder.resolved(config).items() if key != "layout"}
    kernel = _kernel(config)
    if kernel != "none":  # The rest of the layout does not change any bit.
        told["kernel"] = kernel.split(",")[0]
    text = json.dumps(told, sort_keys=True)
    return {
        "config": hashlib.sha256(text.encode()).hexdigest()[:16],
        "jaxdae": versions["jaxdae"],
        "code": _code(),
        "jax": versions["jax"],
        "jaxlib": versions["jaxlib"],
        "numpy": versions["numpy"],
        "scipy": versions["scipy"],
        "flags": " ".join(sorted(os.environ.get("XLA_FLAGS", "").split())) or "none",
        "products": str(jax.default_matmul_precision.value or "default"),
        "backend": jax.default_backend(),
        "devices": str(jax.local_device_count()),
        "kernel": kernel,
    }


def check(place: pathlib.Path, before: dict[str, Any], now: dict[str, str], asked: str) -> None:
    """Raise `Refused` if existing results belong to a different run; the message lists the differences.

    Args:
        place: path of the existing results.
        before: identity of the existing results.
        now: identity of this run.
        asked: the requested option or command, such as --resume.
    """
    keys = [key for key in _TOLD if before.get(key) != now[key]]
    differing = [f"{_TOLD[key]} was {before.get(key, 'not recorded')} and is {now[key]}" for key in keys]
    if differing:
        raise Refused(
            f"{asked}: got {place}, which belongs to another run: its {'; its '.join(differing)}; the "
            "results would not be consistent; continue with the original setup, or start a new run; nothing "
            "was written"
        )


def selected_kernel(config: Config) -> Fused | None:
    """Return the kernel that runs the worlds of a config, None for XLA."""
    kernels = {"auto": Automatic(), "fused": Fused(), "none": None}
    return chosen_kernel(kernels[config.layout.kernel], config.batch.size * config.steps)


def _kernel(config: Config) -> str:
    """Return the kind of kernel that a config selects and the version of its compiler."""
    kernel = selected_kernel(config)
    if kernel is None:
        return "none"
    try:
        return f"fused, {compiler_version()}"
    except Unsupported:
        return "fused, no compiler"


@functools.cache
def _code() -> str:
    """Return a hash of the source files of the package."""
    root = pathlib.Path(__file__).parents[2]
    digest = hashlib.sha256()
    for file in sorted([*root.rglob("*.py"), *root.rglob("*.h")]):
        digest.update(file.relative_to(root).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
