"""The four-bar in jaxdae: three bodies in absolute coordinates, four revolute joints, eight rows."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from four_bar import START_ANGLE, TURN_IN_1_S, four_bar, loop_opening, poses, start_angles
from side_by_side import Accuracy, Contender

import jaxdae

# Three corrections, as by default, with the factorization of the last stage: one factorization a step of
# Euler, four of RK4.
AT_THE_STAGE = jaxdae.Projection(jaxdae.PositionProjection(origin=jaxdae.Origin.STAGE))
INTEGRATORS = {
    "jaxdae semi-implicit Euler + projection": lambda: jaxdae.Projected(
        jaxdae.SemiImplicitEuler(), AT_THE_STAGE
    ),
    "jaxdae RK4 + projection": lambda: jaxdae.Projected(jaxdae.RungeKutta.rk4(), AT_THE_STAGE),
}


KERNEL = ", fused kernel"


def compiled(function, *arguments):
    """Return the compiled function and the seconds that tracing and compiling took."""
    begin = time.perf_counter()
    executable = jax.jit(function).lower(*arguments).compile()
    return executable, time.perf_counter() - begin


class Batch:
    """A batch of worlds, or one world when `worlds` is None, at one precision.

    A name with `KERNEL` at its end selects a fused kernel.
    """

    def __init__(self, name: str, dt: float, precision: str, worlds: int | None):
        self.name, self.dt, self.worlds = name, dt, worlds
        self.x64 = precision == "float64"
        with jax.enable_x64(self.x64):
            self.integrator = INTEGRATORS[name.removesuffix(KERNEL)]()
            self.layout = jaxdae.Layout(kernel=jaxdae.Fused() if name.endswith(KERNEL) else None)
            self.mechanism, _ = four_bar()
            q = jnp.asarray(poses(START_ANGLE if worlds is None else start_angles(worlds)), precision)
            self.start = jaxdae.State(t=jnp.zeros(q.shape[:-1], q.dtype), q=q, v=jnp.zeros_like(q))

    def _rollout(self, steps: int, save_every: int):
        roll = jaxdae.rollout if self.worlds is None else partial(jaxdae.batch_rollout, layout=self.layout)

        def function(mechanism, integrator, state, dt):
            return roll(mechanism, integrator, state, dt=dt, steps=steps, save_every=save_every)

        dt = jnp.asarray(self.dt, self.start.q.dtype)
        executable, seconds = compiled(function, self.mechanism, self.integrator, self.start, dt)
        return (lambda state: executable(self.mechanism, self.integrator, state, dt)), seconds

    def accuracy(self, duration: float = 10.0) -> Accuracy:
        """Return the accuracy over a run in which every step is looked at."""
        with jax.enable_x64(self.x64):
            advance, _ = self._rollout(round(1 / self.dt), save_every=1)
            last = -1 if self.worlds is None else (slice(None), -1)
            state, largest, turn = self.start, 0.0, np.nan
            for second in range(round(duration)):
                trajectory = advance(state)
                jaxdae.raise_if_failed(trajectory.info)
                largest = max(largest, loop_opening(trajectory.state.q))
                state = jax.tree.map(lambda leaf: leaf[last], trajectory.state)
                if second == 0:
                    turn = float(np.ravel(state.q)[2]) - START_ANGLE
        return Accuracy(largest, turn - TURN_IN_1_S)

    def contender(self, steps: int, accuracy: Accuracy) -> Contender:
        """Return the batch as a contender that takes `steps` steps from the start."""
        with jax.enable_x64(self.x64):
            advance, seconds = self._rollout(steps, save_every=steps)

        def run():
            with jax.enable_x64(self.x64):
                return jax.block_until_ready(advance(self.start))

        return Contender(self.name, run, steps * (self.worlds or 1), accuracy, seconds)
