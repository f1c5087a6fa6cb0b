"""Programs in a process of their own, in which the CPU counts as two devices or more: that is decided before
JAX starts."""

import os
import pathlib
import subprocess
import sys

# As fast to compile as all tests; "" optimizes programs as users have them.
FAST = os.environ.get("XLA_FLAGS", "")


def run(program, count=2, flags=""):
    """Returns the process after it has run a program that may import the library and the modules of the
    tests; `flags` are those of XLA.
    """
    root = pathlib.Path(__file__).resolve().parent
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={count}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(root), str(root.parent)]),
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
