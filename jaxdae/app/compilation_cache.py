"""Set up JAX's persistent compilation cache, so that the command compiles each program only once.

The environment variables of JAX take precedence, and JAX_ENABLE_COMPILATION_CACHE=false disables the cache.
Programs depend on the machine. A home folder shared by many machines therefore has one cache folder per kind
of processor and per release of jaxlib. Many processes may use the cache at the same time, because the name of
an entry covers everything that the program depends on. If an entry is unreadable, for example because its
process was killed while writing, JAX warns and compiles the program again. Entries are never removed. You can
delete the folder at any time.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import pathlib
import platform
from collections.abc import Mapping, MutableMapping

FOLDER = "JAX_COMPILATION_CACHE_DIR"
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_CPU_INFO = pathlib.Path("/proc/cpuinfo")


def folder(environment: Mapping[str, str]) -> pathlib.Path:
    """Return the cache folder of this machine: below XDG_CACHE_HOME if that is absolute, else ~/.cache."""
    base = pathlib.Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = pathlib.Path("~/.cache").expanduser()
    return base / "jaxdae" / f"jaxlib-{importlib.metadata.version('jaxlib')}-{_processor()}"


def use(given: MutableMapping[str, str] = os.environ) -> None:
    """Enable the compilation cache of JAX if its folder is writable; call this before `import jax`.

    Args:
        given: the environment that JAX reads when it is imported.
    """
    if FOLDER not in given:
        place = folder(given)
        # With logging on, XLA reports every loaded program as an error. The script `jaxdae` sets the level 3.
        if given.get(LOG_LEVEL) != "3" or not _is_ours(place):
            return
        given[FOLDER] = str(place)
    # Cache small programs too: a run compiles dozens of them, each in a tenth of a second.
    given.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    given.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def _is_ours(place: pathlib.Path) -> bool:
    """Create a folder if it does not exist, and return whether it is writable."""
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.access(place, os.W_OK)


def _processor() -> str:
    """Return a short hash of the machine type and processor features."""
    known = platform.machine()
    with contextlib.suppress(OSError):
        lines = _CPU_INFO.read_text(errors="replace").splitlines()
        known += next((line for line in lines if line.lower().startswith(("flags", "features"))), "")
    return hashlib.sha256(known.encode()).hexdigest()[:10]
