"""Kernels on NVIDIA GPUs: CUDA with one thread per world, compiled by nvcc and called by XLA.

No GPU has run these kernels yet. Tests compile the same source for the CPU and compare the results with the
results of `cpu.py`.

The state of a world stays in the registers of its thread. Temporary memory is a result of the call, (entry,
world), so that XLA allocates it. It holds the saved numbers of all worlds. Blocks have 128 threads, which fit
into the registers of a multiprocessor for any number of registers per thread, and 32 in batches that do not
fill the GPU.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import jax

from jaxdae.fused import library
from jaxdae.fused.emit import Code
from jaxdae.fused.graph import Unsupported
from jaxdae.fused.library import Argument

BLOCK = 128
OPTIMIZED = 25_000
"""Assembler code of programs of at most so many operations is optimized fully, of longer ones by -O1."""
FLAGS = ("-std=c++17", "-O3", "-prec-div=false", "-prec-sqrt=false", "-w", "-shared", "-Xcompiler", "-fPIC")
"""Quotients and square roots in single precision are correct to two units in the last place; XLA's quotients
are, too. A four-bar then has 1,973 instructions per step and 168 registers instead of 2,812 and 208. Double
precision is rounded correctly."""


def compiler() -> Path:
    """Return the path of nvcc from CUDA_HOME, PATH, or the Python package nvidia-cuda-nvcc.

    Raises:
        Unsupported: nvcc is not found.
    """
    home, on_path = os.environ.get("CUDA_HOME"), shutil.which("nvcc")
    packages = importlib.util.find_spec("nvidia")
    folders = (
        [] if packages is None else [Path(x) / "cu13" for x in packages.submodule_search_locations or ()]
    )
    candidates = [*([Path(home) / "bin" / "nvcc"] if home else []), *([Path(on_path)] if on_path else [])]
    found = [
        path for path in (*candidates, *(folder / "bin" / "nvcc" for folder in folders)) if path.is_file()
    ]
    if not found:
        raise Unsupported(
            "no nvcc found; install the CUDA toolkit, put nvcc on PATH, or set CUDA_HOME to the folder of "
            "the toolkit"
        )
    return found[0]


@cache
def _version(nvcc: Path) -> str:
    return library.answer((str(nvcc), "--version"))


def compiler_version() -> str:
    """Return the version of nvcc.

    Raises:
        Unsupported: nvcc is not found.
    """
    return f"nvcc {_version(compiler()).strip().splitlines()[-1]}"


def architecture() -> str:
    """Return the architecture of the first GPU of this process, such as sm_90.

    Raises:
        Unsupported: JAX finds no NVIDIA GPU.
    """
    try:
        device = jax.local_devices(backend="cuda")[0]
    except RuntimeError:
        raise Unsupported("JAX finds no NVIDIA GPU") from None
    return f"sm_{device.compute_capability.replace('.', '')}"


def source(code: Code, inputs: list[Argument], outputs: list[Argument], real: Any) -> str:
    """Return the CUDA source of a kernel."""
    head = [
        *library.types(real),
        '#include "cuda.h"',
        *library.tables(code, "static __device__ const"),
        f"enum {{ INPUTS = {len(inputs)}, OUTPUTS = {len(outputs)}, TEMPORARIES = {code.temporaries}, BLOCK "
        f"= {BLOCK} }};",
        "struct Pointers { const void* in[INPUTS + 1]; void* out[OUTPUTS]; };",
        "static __global__ void __launch_bounds__(BLOCK) rollout(const Pointers pointers, long worlds, R* "
        "memory) {",
        " const long world = (long)blockIdx.x * blockDim.x + threadIdx.x;",
        " if (world >= worlds) return;",
        " const void* const* const in = pointers.in;",
        " void* const* const out = pointers.out;",
        " const Temporary temporary = {memory + world, worlds};",
    ]
    return "\n".join(
        [*head, *library.arguments(inputs, outputs), *code.lines, "}", '#include "cuda_call.h"', ""]
    )


def compiled(text: str, operations: int) -> Path:
    """Return the shared library of a source, from the cache or by nvcc.

    Raises:
        Unsupported: no GPU, no nvcc, or nvcc fails.
    """
    nvcc = compiler()
    level = () if operations <= OPTIMIZED else ("-Xptxas", "-O1")
    command = (str(nvcc), *FLAGS, f"-arch={architecture()}", *level)
    # The linker of the toolkit of a Python package does not look into its own folder.
    link = (f"-L{nvcc.resolve().parents[1] / 'lib'}",)
    return library.built(
        text, operations, ("call.h", "cuda.h", "cuda_call.h"), ".cu", command, link, _version(nvcc)
    )


def registered(file: Path) -> str:
    """Return the name under which XLA calls the kernel of a library."""
    return library.registered(file, "CUDA")
