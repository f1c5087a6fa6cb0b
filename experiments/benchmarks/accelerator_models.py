"""What `accelerator.py` and `two_cores.py` simulate: a four-bar, Andrews' squeezing mechanism, the humanoid G1 and the robot Cassie.

Each model is a system, a method and one consistent start, in the precision that JAX has when it is made; the worlds of a batch begin at the
same start. MJX has the four-bar, G1 and Cassie of the other benchmarks.
"""

import contextlib
import dataclasses
import io
import site
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from four_bar import START_ANGLE, four_bar, poses

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae import robots
from jaxdae.mechanisms import spatial as js

ROOT = Path(__file__).resolve().parents[2]
CASSIE = ROOT / "tests" / "reference" / "models" / "cassie.xml"
G1 = "cmeel.prefix/share/example-robot-data/robots/g1_description/urdf/g1_29dof_rev_1_0.urdf"


class Missing(Exception):
    """A file or a package that a model needs and that is not installed."""


@dataclasses.dataclass(frozen=True)
class Model:
    """One mechanism with one method.

    Attributes:
        system: the mechanism.
        method: the integrator.
        start: of one world.
        dt: the step in s.
    """

    system: Any
    method: Any
    start: jaxdae.State
    dt: float


def _four_bar() -> Model:
    """Semi-implicit Euler with projections about the stage, as in the table of peers."""
    method = jaxdae.Projected(jaxdae.SemiImplicitEuler(), jaxdae.Projection(jaxdae.PositionProjection(origin=jaxdae.Origin.STAGE)))
    q = jnp.asarray(poses(START_ANGLE))
    return Model(four_bar()[0], method, jaxdae.State(jnp.zeros((), q.dtype), q, jnp.zeros_like(q)), 1e-3)


def _andrews() -> Model:
    """RK4 with projections, as `configs/squeezing_mechanism.yaml` has it."""
    from jaxdae.app import load

    precision = "float64" if jax.config.read("jax_enable_x64") else "float32"
    config, worlds = load(str(ROOT / "configs" / "squeezing_mechanism.yaml"), ("batch.size=1", f"precision={precision}"))
    system, method, start = worlds.one()
    return Model(system, method, start, config.dt)


def _g1() -> Model:
    """Semi-implicit Euler in joint coordinates, on a free base without limits, friction and damping; no loops."""
    file = next((path for folder in site.getsitepackages() if (path := Path(folder) / G1).exists()), None)
    if file is None:
        raise Missing("the package example-robot-data is not installed")
    found = robots.load(file, base="floating", gravity=(0.0, -9.81, 0.0)).description
    joints = [_without(joint, "damping", "friction") for joint in found.joints]
    mechanism, q = jm.mechanism(dataclasses.replace(found, joints=joints, forces=()), jm.Joints())
    rest = jaxdae.State(jnp.zeros((), q.dtype), q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    return Model(mechanism, jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement()), rest, 1e-3)


def _cassie() -> Model:
    """Semi-implicit Euler in joint coordinates without damping, one correction of positions a step; 12 rows of rank 10."""
    dt = 5e-4
    try:
        robot = robots.load(CASSIE)
    except ModuleNotFoundError as error:
        raise Missing(str(error)) from None
    joints = [_without(joint, "damping") for joint in robot.description.joints]
    forces = [one for one in robot.description.forces if not isinstance(one, js.RotationalDamper)]
    mechanism, q = jm.mechanism(dataclasses.replace(robot.description, joints=joints, forces=forces), jm.Joints())
    start = jaxdae.initialize(mechanism, robots.joint_state(mechanism, q, robot.start).q)[0]
    once = jaxdae.Projection(jaxdae.PositionProjection(iterations=1, origin=jaxdae.Origin.STAGE), None)
    method = jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement(), stabilization=jaxdae.Baumgarte(0.5 / dt, 0.0))
    return Model(mechanism, jaxdae.Projected(method, once), start, dt)


def _without(joint: Any, *names: str) -> Any:
    """Returns a joint whose numbers of these names, where it has them, are zero."""
    return type(joint)(**{**vars(joint), **{name: 0.0 for name in names if hasattr(joint, name)}})


MODELS: dict[str, Callable[[], Model]] = {"four-bar": _four_bar, "Andrews": _andrews, "G1": _g1, "Cassie": _cassie}


@dataclasses.dataclass(frozen=True)
class Peer:
    """The same in MJX.

    Attributes:
        advance: (data, steps) -> data of one world.
        start: the data of one world.
        opening: data of many worlds -> by how much loops are open, in m.
    """

    advance: Callable[[Any, int], Any]
    start: Any
    opening: Callable[[Any], float]


def peer(name: str) -> Peer:
    """Returns the fastest setting of MJX with which the other benchmarks run this model: one iteration of its solver.

    Raises:
        Missing: MJX is not installed, or has no such model.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it announces its optional packages
            import mujoco
            from mujoco import mjx
    except ModuleNotFoundError:
        raise Missing("mujoco-mjx is not installed") from None
    if name == "Andrews":
        raise Missing("no model of it for MJX")
    engine: Any = mujoco
    model = _of_mujoco(name, engine)
    mx = mjx.put_model(model)
    data = engine.MjData(model)

    def opening(end: Any) -> float:
        data.qpos[:] = np.asarray(end.qpos).reshape(-1, model.nq)[0]
        engine.mj_forward(model, data)
        return float(np.max(np.abs(data.efc_pos[: data.ne]), initial=0.0))

    def advance(at: Any, steps: int) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, now: mjx.step(mx, now), at)

    return Peer(advance, mjx.make_data(mx), opening)


def _of_mujoco(name: str, mujoco: Any) -> Any:
    if name == "four-bar":
        from peers_mujoco import MJX, model

        return model(MJX["MJX fastest"], 1e-3)
    if name == "G1":
        from many_bodies_models import g1_file, g1_of_mujoco

        file = g1_file()
        if file is None:
            raise Missing("the package example-robot-data is not installed")
        return g1_of_mujoco(file, 1e-3)
    found = mujoco.MjModel.from_xml_path(str(CASSIE))
    found.dof_damping[:] = 0.0
    found.opt.timestep, found.opt.integrator = 5e-4, mujoco.mjtIntegrator.mjINT_EULER
    found.opt.iterations, found.opt.ls_iterations = 1, 1
    for flag in ("LIMIT", "CONTACT", "EULERDAMP"):
        found.opt.disableflags |= getattr(mujoco.mjtDisableBit, f"mjDSBL_{flag}")
    return found
