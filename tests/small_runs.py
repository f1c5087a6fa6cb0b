"""Runs of the command on a small batch, and what is asked of them: the finished store is always the same,
byte by byte.
"""

import typer.testing

from jaxdae.app.cli import app
from jaxdae.app.runs import run_folder

# 100 worlds of a damped pendulum, whose work integral reaches over blocks.
SWING = """
name: swing
mechanism:
  bodies:
    - {name: rod, mass: 1.0, inertia: 0.08, pose: [0.5, 0, 0]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: rod, at: [0, 0], damping: 0.3}
duration: 0.9
dt: 0.01
save_every: 2
integrator: {type: semi_implicit_euler}
batch: {size: 100, vary: [{path: bodies.rod.mass, scatter: 0.1}]}
output: {plots: false}
"""


def command(*arguments):
    """Returns exit code, standard output and standard error; an exception that reaches the user as a
    traceback is raised.
    """
    result = typer.testing.CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def content(store):
    """Returns what a store holds, by path."""
    return {str(file.relative_to(store)): file.read_bytes() for file in store.rglob("*") if file.is_file()}


def only(out):
    (folder,) = out.iterdir()
    return folder


def assert_equal(folder, whole):
    """Asserts that a run ended as the one that nothing interrupted."""
    assert content(folder / "results.zarr") == content(whole / "results.zarr")
    found, expected = (run_folder.read_record(each) for each in (folder, whole))
    assert found["complete"]
    assert found["results"] == expected["results"]
    assert found["digests"] == expected["digests"]
    assert not (folder / "parts").exists()
