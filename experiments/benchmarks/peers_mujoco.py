"""The four-bar in MuJoCo (C) and MJX: a tree of three hinges, and a `connect` equality at C."""

import contextlib
import io
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from four_bar import (
    COUPLER,
    CRANK,
    GRAVITY,
    GROUND_LINK,
    ROCKER,
    START_ANGLE,
    TURN_IN_1_S,
    link_angles,
    start_angles,
)
from side_by_side import Accuracy, Contender

with contextlib.redirect_stdout(io.StringIO()):  # it announces its optional packages
    from mujoco import mjx


@dataclass(frozen=True)
class Setting:
    """Solver options in MJCF."""

    option: str = ""
    flag: str = ""
    connect: str = ""


# The constraint that MuJoCo makes unasked, and the stiffest that it takes at 1 ms (solref >= 2 steps).
MUJOCO = {
    "MuJoCo Euler": Setting('integrator="Euler"'),
    "MuJoCo RK4": Setting('integrator="RK4"'),
    "MuJoCo RK4 stiff": Setting('integrator="RK4"', connect='solref="0.002 1" solimp="0.9999 0.9999 0.001"'),
}
# One Newton iteration solves a problem of equalities only. Its line search needs one iteration, too, and
# without joint damping its implicit treatment does nothing: dropping both changes no printed digit and makes
# the last the fastest.
MJX = {
    "MJX default": Setting('integrator="Euler"'),
    "MJX iterations=1": Setting('integrator="Euler" iterations="1"'),
    "MJX fastest": Setting(
        'integrator="Euler" iterations="1" ls_iterations="1"', '<flag eulerdamp="disable"/>'
    ),
}


def model(setting: Setting, dt: float) -> mujoco.MjModel:
    """Return the compiled model; its reference pose is the start pose."""
    crank, coupler, rocker = link_angles(START_ANGLE)

    def turn(angle):
        return f'quat="{float(np.cos(angle / 2))!r} 0 0 {float(np.sin(angle / 2))!r}"'

    def rod(length):  # thin: only the last inertia counts in the plane
        across = length**3 / 12
        return (
            f'<inertial pos="{length / 2} 0 0" mass="{length}" diaginertia="{across / 100} {across} '
            f'{across}"/>'
        )

    return mujoco.MjModel.from_xml_string(f"""
        <mujoco>
          <option timestep="{dt}" gravity="0 {-GRAVITY} 0" {setting.option}>{setting.flag}</option>
          <worldbody>
            <body name="crank" {turn(crank)}>
              <joint name="A" axis="0 0 1"/>{rod(CRANK)}
              <body name="coupler" pos="{CRANK} 0 0" {turn(coupler - crank)}>
                <joint name="B" axis="0 0 1"/>{rod(COUPLER)}<site name="coupler" pos="{COUPLER} 0 0"/>
              </body>
            </body>
            <body name="rocker" pos="{GROUND_LINK} 0 0" {turn(rocker)}>
              <joint name="D" axis="0 0 1"/>{rod(ROCKER)}<site name="rocker" pos="{ROCKER} 0 0"/>
            </body>
          </worldbody>
          <equality><connect site1="coupler" site2="rocker" {setting.connect}/></equality>
        </mujoco>""")


def opening(sites) -> float:
    """Return the largest distance (m) of the two sites at C, in positions (..., 2, 3)."""
    sites = np.asarray(sites, float)
    return float(np.linalg.norm(sites[..., 0, :] - sites[..., 1, :], axis=-1).max())


def mujoco_single(name: str, dt: float, steps: int) -> Contender:
    """Return one world of MuJoCo, `steps` steps from the start without Python between them."""
    m = model(MUJOCO[name], dt)
    d = mujoco.MjData(m)

    def run():
        mujoco.mj_resetData(m, d)
        mujoco.mj_step(m, d, nstep=steps)

    largest, turn = 0.0, np.nan
    for k in range(1, round(10 / dt) + 1):
        mujoco.mj_step(m, d)
        mujoco.mj_kinematics(m, d)
        largest = max(largest, opening(d.site_xpos))
        if k == round(1 / dt):
            turn = float(d.qpos[0])
    return Contender(name, run, steps, Accuracy(largest, turn - TURN_IN_1_S))


class MJXBatch:
    """A batch of worlds in MJX, compiled once, advanced by any number of steps."""

    def __init__(self, name: str, dt: float, precision: str, worlds: int):
        self.name, self.dt, self.worlds = name, dt, worlds
        self.x64 = precision == "float64"
        with jax.enable_x64(self.x64):
            mx = mjx.put_model(model(MJX[name], dt))
            angles = link_angles(start_angles(worlds)) - link_angles(START_ANGLE)
            angles[:, 1] -= angles[:, 0]  # the coupler hangs on the crank
            data = mjx.make_data(mx)
            self.start = jax.vmap(lambda q: data.replace(qpos=q))(jnp.asarray(angles, precision))

            def advance(batch, steps):
                step = jax.vmap(mjx.step, in_axes=(None, 0))
                return jax.lax.fori_loop(0, steps, lambda _, batch: step(mx, batch), batch)

            begin = time.perf_counter()
            self.compiled = jax.jit(advance).lower(self.start, jnp.int32(1)).compile()
            self.compile_s = time.perf_counter() - begin

    def advance(self, batch, steps: int):
        """Return the batch after `steps` steps."""
        with jax.enable_x64(self.x64):
            return jax.block_until_ready(self.compiled(batch, jnp.int32(steps)))

    def accuracy(self, duration: float = 10.0) -> Accuracy:
        """Return the accuracy over a run in which every step is looked at."""
        batch, largest, turn = self.start, 0.0, np.nan
        for k in range(1, round(duration / self.dt) + 1):
            batch = self.advance(batch, 1)
            largest = max(largest, opening(batch.site_xpos))  # poses of the step's start
            if k == round(1 / self.dt):
                turn = float(batch.qpos[0, 0])
        return Accuracy(largest, turn - TURN_IN_1_S)

    def contender(self, steps: int, accuracy: Accuracy) -> Contender:
        """Return the batch as a contender that takes `steps` steps from the start."""
        run = lambda: self.advance(self.start, steps)  # noqa: E731
        return Contender(self.name, run, steps * self.worlds, accuracy, self.compile_s)
