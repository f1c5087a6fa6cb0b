"""A loss of one rollout in separate parts, so that `check_gradients` can examine single steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxdae.compile.layout import Fused
from jaxdae.compile.rematerialization import Keep
from jaxdae.fused import fuse
from jaxdae.rollouts.rollout_arguments import as_controls
from jaxdae.rollouts.trajectory import Trajectory, rollout


@dataclasses.dataclass(frozen=True)
class RolloutLoss:
    """A function parameters -> scalar in three parts: setup, rollout, evaluation.

    Attributes:
        setup: parameters -> (system, integrator, state, controls), as arguments of `rollout`.
        loss: (parameters, trajectory) -> scalar.
        dt: the step length in s.
        steps: the number of steps.
        save_every: as in `rollout`.
        segment: as in `rollout`.
        keep: as in `rollout`.
        kernel: `Fused()` to run the rollout and its derivatives as kernels on CPUs; None for XLA. XLA
            evaluates the loss in both cases.
    """

    setup: Callable[[Any], tuple[Any, Any, Any, Any]]
    loss: Callable[[Any, Trajectory], Any]
    dt: Any
    steps: int
    save_every: int = 1
    segment: int | None = None
    keep: Keep = Keep.STATES
    kernel: Fused | None = None

    def trajectory(self, parameters: Any) -> Trajectory:
        """Return the trajectory on which the loss is evaluated."""
        system, integrator, state, controls = self.setup(parameters)
        plan: Any = {
            "steps": self.steps,
            "save_every": self.save_every,
            "segment": self.segment,
            "keep": self.keep,
        }
        if self.kernel is None:
            return rollout(system, integrator, state, controls, dt=self.dt, **plan)

        def rolled(dt: Any, *given: Any) -> Trajectory:
            return rollout(*given, dt=dt, **plan)

        return fuse(rolled)(self.dt, system, integrator, state, as_controls(controls, state))

    def __call__(self, parameters: Any) -> Any:
        """Return the loss."""
        return self.loss(parameters, self.trajectory(parameters))
