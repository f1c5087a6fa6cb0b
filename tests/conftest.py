"""What holds in every test: fast compilation, double precision, strict dtype promotion, and signatures that
are checked at run time.

The import hook must be set before the first import of `jaxdae`, so it stands here and not in a fixture.
"""

import ctypes
import functools
import gc
import os
import pathlib
import shutil
import sys
import types
import typing

# Many tests compile equal programs, in this process, in the other workers and in the processes that tests start.
# Each program is compiled once: by the first of them in the first run. A folder that has grown beyond 2 GB starts
# anew. JAX reads these variables when it is imported. XLA reports two missing processor features as errors for
# every program that it loads, unless its log is off.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    COMPILED = pathlib.Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"
    if sum(path.stat().st_size for path in COMPILED.glob("*")) > 2e9:
        shutil.rmtree(COMPILED)
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": str(COMPILED),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }

import jax
import pytest
from beartype import beartype
from jaxtyping import install_import_hook

# Nearly all of the time of the tests is compilation, of programs that then run for a millisecond. Without
# LLVM's optimizations, in one module of code and without MLIR's emitters of fused loops, which newer releases
# cannot do without, it takes a third. Without the two passes that move constants into and out of nested loops,
# large programs take a tenth less. XLA reads these flags before its first program, and does not start where it
# finds one that it does not know.
FAST_COMPILATION = [
    "--xla_backend_optimization_level=0",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=while-loop-invariant-code-motion,while-loop-constant-sinking",
]
if jax.__version_info__ < (0, 10):
    FAST_COMPILATION.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([*FAST_COMPILATION, os.environ.get("XLA_FLAGS", "")])

jax.config.update("jax_enable_x64", True)
# A float32 constant that meets a float64 state is a mistake in the library, not something to convert
# silently.
jax.config.update("jax_numpy_dtype_promotion", "strict")


def _check(function: typing.Any) -> typing.Any:
    """Returns the function with its types checked; protocols of its module are made fit for isinstance()
    before.

    The check is built at the first call, since a worker never calls most functions of the package: importing
    all of it takes 10 s of CPU time instead of 14 s.
    """

    @functools.cache
    def checked() -> typing.Any:
        for value in vars(sys.modules[function.__module__]).values():
            if (
                isinstance(value, type)
                and getattr(value, "_is_protocol", False)
                and value is not typing.Protocol
            ):
                typing.runtime_checkable(value)
        return beartype(function)

    return lambda *args, **kwargs: checked()(*args, **kwargs)


# jaxtyping checks the shapes and dtypes in the annotations of the library, beartype all other types. The hook
# takes the name of an importable function.
sys.modules["_jaxdae_typechecker"] = types.ModuleType("_jaxdae_typechecker")
sys.modules["_jaxdae_typechecker"].check = _check
install_import_hook("jaxdae", "_jaxdae_typechecker.check")

# Tracing makes millions of small objects that live on. Looking for cycles among them after every 700, as
# Python does, takes a twelfth of the time of the tests.
gc.set_threshold(50_000, 5, 5)


def pytest_report_header() -> str:
    return f"JAX {jax.__version__}, {os.cpu_count()} processors, {_memory_limit() / 1e9:.1f} GB per worker"


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An exhaustive test is a long one too, so that `-m "not long"` leaves it out."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """Modules that were imported live to the end: no search for cycles looks at them again."""
    gc.freeze()


# `import problems` in test modules; with --import-mode=importlib pytest itself leaves sys.path alone.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


MAPPINGS, PAGES = pathlib.Path("/proc/self/maps"), pathlib.Path("/proc/self/statm")
CONTAINER = pathlib.Path("/sys/fs/cgroup/memory.max")


def _memory_limit() -> float:
    """Return the memory of a worker in bytes above which compiled programs are dropped at the end of a
    module.

    A worker starts at 0.6 GB, and a module adds up to 1.4 GB. Dropping programs takes some seconds, and small
    ones are compiled again: a sixth of the memory of the machine or container, but 1.6 GB to 3.2 GB.
    """
    available = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE"))
    if CONTAINER.exists() and (limit := CONTAINER.read_text().strip()) != "max":
        available = min(available, float(limit))
    return max(1.6e9, min(3.2e9, available / 6.0))


def _memory_is_short() -> bool:
    """Return whether a worker exceeds its memory limit, or 20,000 memory mappings.

    Linux allows a process 65,530 mappings. Beyond them, LLVM crashes.
    """
    if not MAPPINGS.exists():
        return True
    resident = int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return resident > _memory_limit() or MAPPINGS.read_bytes().count(b"\n") > 20_000


@pytest.fixture(scope="module", autouse=True)
def _compiled_programs_end_before_memory_does():
    """Modules share what they compiled, as long as there is room."""
    yield
    if _memory_is_short():
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            # What was freed in small pieces goes back to the system only when the C library is asked; without
            # this it stays with us.
            getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: None)(0)
