"""Models of `absent_gpu.py`, `limits.py` and `two_cores.py`.

They are pendulums, the models of `gpu.py`, the humanoid G1 and Cassie.

Each model has the default precision of JAX at the time of the call. G1 needs the package example-robot-data,
and Cassie needs MuJoCo, which reads MJCF.
"""

import dataclasses
import site
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gpu_models
import jax.numpy as jnp
from gpu_models import Model

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

ROOT = Path(__file__).resolve().parents[2]
CASSIE = ROOT / "tests" / "reference" / "models" / "cassie.xml"
G1 = "cmeel.prefix/share/example-robot-data/robots/g1_description/urdf/g1_29dof_rev_1_0.urdf"


class Missing(Exception):
    """A file or a package that a model needs and that is not installed."""


def _g1() -> Model:
    """Semi-implicit Euler in joint coordinates, on a free base without limits, friction and damping.

    No loops.
    """
    file = next((path for folder in site.getsitepackages() if (path := Path(folder) / G1).exists()), None)
    if file is None:
        raise Missing("the package example-robot-data is not installed")
    found = robots.load(file, base="floating", gravity=(0.0, -9.81, 0.0)).description
    joints = [_without(joint, "damping", "friction") for joint in found.joints]
    mechanism, q = jm.mechanism(dataclasses.replace(found, joints=joints, forces=()), jm.Joints())
    rest = jaxdae.State(jnp.zeros((), q.dtype), q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    return Model(mechanism, jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement()), rest, 1e-3)


def _cassie() -> Model:
    """Semi-implicit Euler in joint coordinates without damping, one correction of positions a step.

    12 rows of rank 10.
    """
    dt = 5e-4
    try:
        robot = robots.load(CASSIE)
    except ModuleNotFoundError as error:
        raise Missing(str(error)) from None
    joints = [_without(joint, "damping") for joint in robot.description.joints]
    forces = [one for one in robot.description.forces if not isinstance(one, js.RotationalDamper)]
    mechanism, q = jm.mechanism(
        dataclasses.replace(robot.description, joints=joints, forces=forces), jm.Joints()
    )
    start = jaxdae.initialize(mechanism, robots.joint_state(mechanism, q, robot.start).q)[0]
    once = jaxdae.Projection(jaxdae.PositionProjection(iterations=1, origin=jaxdae.Origin.STAGE), None)
    method = jaxdae.SemiImplicitEuler(
        solver=jaxdae.SchurComplement(), stabilization=jaxdae.Baumgarte(0.5 / dt, 0.0)
    )
    return Model(mechanism, jaxdae.Projected(method, once), start, dt)


def _without(joint: Any, *names: str) -> Any:
    """Return a joint whose numbers of these names, where it has them, are zero."""
    return type(joint)(**{**vars(joint), **{name: 0.0 for name in names if hasattr(joint, name)}})


def _links(count: int) -> Model:
    """Return a hanging chain of this many links, in joint coordinates with semi-implicit Euler."""
    bodies = [jm.Body(f"link{k}", mass=1.0, inertia=0.1, pose=(k + 0.5, 0.0, 0.0)) for k in range(count)]
    names = [jm.GROUND, *(body.name for body in bodies)]
    joints = [jm.Revolute(f"hinge{k}", names[k], names[k + 1], at=(float(k), 0.0)) for k in range(count)]
    system, q = jm.planar_mechanism(bodies, joints, coordinates=jm.Joints())
    start = jaxdae.State(jnp.zeros((), q.dtype), jnp.asarray(q), jnp.zeros((count,), q.dtype))
    return Model(system, jaxdae.SemiImplicitEuler(), start, 1e-3)


MODELS: dict[str, Callable[[], Model]] = {
    "pendulum": partial(_links, 1),
    "double-pendulum": partial(_links, 2),
    **gpu_models.MODELS,
    "G1": _g1,
    "Cassie": _cassie,
}
