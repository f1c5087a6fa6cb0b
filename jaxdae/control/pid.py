"""Proportional, integral and derivative feedback of outputs.

    u = Kp (yd - y) + Kd (yd' - y') + z,        z' = Ki (yd - y)        (z: PID only)

y are outputs of the coordinates, and yd is their reference. The law acts on the inputs directly: either input
k drives output k, or the matrices Kp and Kd assign errors to inputs. Compensation of the weight is a separate
law, `GravityCompensation`. With it, a PD holds a resting mechanism without an offset (M. Takegaki, S.
Arimoto, "A new feedback method for dynamic control of manipulators", ASME Journal of Dynamic Systems,
Measurement, and Control 103 (1981)). A PID has no offset even without knowledge of the weight.
"""

from __future__ import annotations

from typing import Any, NoReturn

import jax.numpy as jnp

from jaxdae.base.dataclass import function_field, pytree
from jaxdae.base.requirements import not_above
from jaxdae.control.law import clip, is_law, refuse_call
from jaxdae.control.outputs import apply_gain, output_rate, reference_motion
from jaxdae.integrators.integrator import checked_input
from jaxdae.systems.system import MODEL_TEXT, AnySystem, State, is_system
from jaxdae.typing import Input, Leaf


def _errors(law: Any, t: Any, state: State) -> tuple[Any, Any]:
    """Return yd - y and yd' - y' (ny,)."""
    y, rate = output_rate(law.model, law.output, state)
    target, target_rate, _ = reference_motion(law.reference, t, y)
    return target - y, target_rate - rate


@pytree(kw_only=True)
class PD:
    """u = Kp (yd - y) + Kd (yd' - y').

    Attributes:
        model: the system, whose `retract` defines how velocities change coordinates.
        output: y(q), a pytree with `__call__(q)`, such as `Coordinates`.
        reference: yd: (ny,), a number, or a pytree with `__call__(t)`.
        kp: in units of u per unit of y: a number, (ny,) or (nu, ny).
        kd: in units of u per unit of y and 1/s: a number, (ny,) or (nu, ny).

    Differentiable with respect to all fields.
    """

    model: AnySystem
    output: Any = function_field()
    reference: Any = function_field()
    kp: Leaf
    kd: Leaf = 0.0

    def requirements(self) -> Any:
        """Yield the conditions on the model; see `jaxdae.base.requirements`."""
        yield is_system(self.model), MODEL_TEXT

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        error, error_rate = _errors(self, t, state)
        return apply_gain("kp", self.kp, error) + apply_gain("kd", self.kd, error_rate)


@pytree(kw_only=True)
class PID:
    """u = Kp (yd - y) + Kd (yd' - y') + z + feedforward, with the integral z; runs inside `Sampled`.

    The law updates z once per step to z + dt Ki (yd - y), after computing u with the old value. *Anti-windup*
    by clamping: the integral of an input stops while the input is at a limit and the error would drive it
    further beyond.

    Attributes:
        model: the system, whose `retract` defines how velocities change coordinates.
        output: y(q), a pytree with `__call__(q)`, such as `Coordinates`.
        reference: yd: (ny,), a number, or a pytree with `__call__(t)`.
        kp: in units of u per unit of y: a number, (ny,) or (nu, ny).
        ki: in units of u per unit of y and s.
        kd: in units of u per unit of y and 1/s.
        lower: smallest inputs, a number or (nu,); None for no limit.
        upper: largest inputs.
        integral: z at the start, a number or (nu,), in units of u.
        feedforward: a law that is added before the limits, such as `GravityCompensation`; None for no law.

    Differentiable almost everywhere with respect to all fields. Where a limit is active, u depends on the
    limit alone.

    References:
        K. J. Astrom, T. Hagglund, "Advanced PID Control" (2006), section 3.5 on integrator windup.
    """

    model: AnySystem
    output: Any = function_field()
    reference: Any = function_field()
    kp: Leaf
    ki: Leaf
    kd: Leaf = 0.0
    lower: Leaf = None
    upper: Leaf = None
    integral: Leaf = 0.0
    feedforward: Any = function_field(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_system(self.model), MODEL_TEXT
        yield not_above(self.lower, self.upper), "lower must not be above upper"
        yield (
            self.feedforward is None or is_law(self.feedforward),
            "feedforward must be a feedback law, or None",
        )

    def __call__(self, t: Any, state: State) -> NoReturn:
        """Raise TypeError: the law has a memory."""
        refuse_call(self)

    def init(self, system: AnySystem, state: State) -> Any:
        """Return z at the start (nu,)."""
        error, _ = _errors(self, state.t, state)
        rate = apply_gain("ki", self.ki, error)
        start = jnp.asarray(self.integral, rate.dtype)
        if start.shape not in ((), rate.shape):
            raise ValueError(
                f"PID.integral must be a number or have the shape of the input {rate.shape}, got "
                f"{start.shape}"
            )
        return jnp.broadcast_to(start, rate.shape)

    def update(self, t: Any, state: State, memory: Any, dt: Any) -> tuple[Input, Any]:
        """Return u (nu,), and z after the step."""
        error, error_rate = _errors(self, t, state)
        wanted = apply_gain("kp", self.kp, error) + apply_gain("kd", self.kd, error_rate) + memory
        if self.feedforward is not None:
            wanted = wanted + checked_input(self.feedforward, self.feedforward(t, state))
        u = clip(wanted, self.lower, self.upper)
        rate = apply_gain("ki", self.ki, error)
        # Compare with the limits instead of u: the compiler may compute `wanted` twice, so that it differs
        # from u by rounding where no limit is active.
        above = False if self.upper is None else wanted > jnp.asarray(self.upper, wanted.dtype)
        below = False if self.lower is None else wanted < jnp.asarray(self.lower, wanted.dtype)
        winding = (above & (rate > 0.0)) | (below & (rate < 0.0))
        return u, memory + jnp.where(winding, 0.0, dt * rate)
