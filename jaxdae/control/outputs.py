"""Outputs y(q) of feedback laws, and the references that they track.

An output is a pytree with `__call__(q)` that returns y (ny,): `Coordinates` or `BodyPoint` below, a class of
your own, or a plain function inside of `jax.tree_util.Partial`. Along the motion

    y' = Jy v,      y'' = Jy a + b,       b: y'' along the motion at constant velocities.

Autodiff computes all of these. A reference is an array, or a pytree with `__call__(t)`, for which autodiff
computes the first and second derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief, join_first
from jaxdae.geometry.planar_frames import Frame
from jaxdae.geometry.trigonometry import cos_sin
from jaxdae.systems.state_checks import report_state
from jaxdae.systems.system import AnySystem, State, check_mechanism, checked_state, uniform_motion
from jaxdae.typing import Coordinates as Q
from jaxdae.typing import Leaf

Vector = Float[Array, " ny"]


@pytree
class Coordinates:
    """The output y_k = q[of[k]] - q[minus[k]]: coordinates or differences of two, such as hinge angles.

    Attributes:
        of: indices into q (static).
        minus: indices to subtract, -1 for none (static); empty if no entry subtracts a coordinate.
    """

    of: tuple[int, ...] = static(one_of=tuple)
    minus: tuple[int, ...] = static(one_of=tuple, default=())

    @classmethod
    def named(cls, mechanism: Any, *names: str | tuple[str, str]) -> Coordinates:
        """Return the output for coordinate names.

        A name such as "crank.theta" selects a coordinate. A pair such as ("forearm.theta", "arm.theta") means
        the first coordinate minus the second.

        Args:
            mechanism: the mechanism with these `coordinate_names`.
            *names: one name, or a pair of names, per output.

        Raises:
            ValueError: no name, or an unknown one.
        """
        known = mechanism.coordinate_names
        if not names:
            raise ValueError("Coordinates.named: name at least one coordinate")
        pairs = [(name, None) if isinstance(name, str) else name for name in names]
        for name in [name for pair in pairs for name in pair if name is not None]:
            if name not in known:
                raise ValueError(
                    f"Coordinates.named: no coordinate {brief(name)}; available: {join_first(known)}"
                )
        return cls(
            tuple(known.index(a) for a, _ in pairs),
            tuple(-1 if b is None else known.index(b) for _, b in pairs),
        )

    def __call__(self, q: Q) -> Vector:
        """Return y (ny,).

        Raises:
            ValueError: an index out of range, or `minus` and `of` of different lengths.
        """
        for k in self.of:
            check_index("Coordinates.of", k, q.shape[0], "coordinate")
        y = q[jnp.asarray(self.of)]
        if not self.minus:
            return y
        if len(self.minus) != len(self.of):
            raise ValueError(
                f"Coordinates.minus must have as many entries as Coordinates.of, {len(self.of)}, got "
                f"{len(self.minus)}"
            )
        for k in self.minus:
            check_index("Coordinates.minus", k, q.shape[0], "coordinate", none=-1)
        minus = jnp.asarray(self.minus)
        return y - jnp.where(minus >= 0, q[minus], 0.0)


@pytree
class BodyPoint:
    """y = the position of a body-fixed point in the world frame (2,), in space (3,), in m.

    Attributes:
        body: number of the body (static).
        point: (2,) in the frame of the body, whose origin is its center of mass; in m; (3,) in space.
        coordinates: the map from q to body frames of the mechanism; None for (x, y, theta) of every body in
            the plane.

    `named` stores the lengths that the mechanism has at that time. If lengths are differentiated or differ
    between worlds, create the output from the simulated mechanism inside of the function.

    The output does not know the constraints and does not check q; `jaxdae.state_status` does.
    """

    body: int = static()
    point: Leaf
    coordinates: Leaf = None

    @classmethod
    def named(cls, mechanism: Any, name: str, point: Any) -> BodyPoint:
        """Return the output for the name of a body.

        Args:
            mechanism: the mechanism with these `body_names`, in absolute or in joint coordinates.
            name: the body.
            point: (2,) in the frame of the body, in m; (3,) in space.

        Raises:
            ValueError: an unknown body, or a point with a wrong number of components.
        """
        return cls(*point_of_body("BodyPoint", mechanism, name, point))

    def __call__(self, q: Q) -> Vector:
        """Return y (2,), in space (3,).

        Raises:
            ValueError: a body that does not exist.
        """
        return body_frame("BodyPoint.body", self.coordinates, q, self.body).point(self.point).array()


def check_index(what: str, index: Any, count: int, kind: str, none: int | None = None) -> None:
    """Raise an error if an index is out of range.

    Negative indices are also refused, because a miscounted index would select another object.

    Args:
        what: owner of the index, for the message.
        index: 0, 1, ..., count - 1.
        count: number of valid indices.
        kind: the kind of object that the index selects.
        none: an index that means none.

    Raises:
        TypeError: not an integer.
        ValueError: an integer out of range.
    """
    if isinstance(index, bool) or not isinstance(index, int | np.integer):
        raise TypeError(f"{what} must hold indices (0, 1, ...), got {brief(index)}")
    if index != none and not 0 <= index < count:
        also = "" if none is None else f", or {none} for none"
        raise ValueError(
            f"{what} = {brief(index)} is not a valid {kind} index; there are {count}, counted from 0{also}"
        )


def point_of_body(what: str, mechanism: Any, name: str, point: Any) -> tuple[int, Array, Any]:
    """Return the number of a body, a point as an array, and the coordinates of the mechanism.

    Messages start with the name `what` of the output.

    Raises:
        ValueError: an unknown body, or a point with a wrong number of components.
    """
    check_mechanism(mechanism)
    if name not in mechanism.body_names:
        raise ValueError(
            f"{what}.named: no body {brief(name)}; available: {join_first(mechanism.body_names)}"
        )
    place = jnp.asarray(point, mechanism.dtype)
    if place.shape != (mechanism.space.dimension,):
        raise ValueError(
            f"{what}.named: point must have shape ({mechanism.space.dimension},), got {place.shape}"
        )
    return mechanism.body_names.index(name), place, mechanism.coordinates


def body_frame(what: str, coordinates: Any, q: Q, body: int) -> Any:
    """Return the frame of a body, a `Frame` of scalars, from the coordinates of its mechanism.

    Args:
        what: owner of the body number, for the message.
        coordinates: the map from q to body frames; None for (x, y, theta) of every body in the plane.
        q: coordinates (nq,).
        body: its number.

    Raises:
        ValueError: a body that does not exist.
    """
    if coordinates is None:
        check_index(what, body, q.shape[0] // 3, "body")
        x, y, angle = q[3 * body], q[3 * body + 1], q[3 * body + 2]
        return Frame(x, y, angle, *cos_sin(angle))
    frames = coordinates.at_rest(q).frame
    check_index(what, body, frames[0].shape[0], "body")
    return jax.tree.map(lambda entry: entry[body], frames)


@pytree
class OutputMotion:
    """An output at a state: y, y' (ny,), Jy (ny, nv), and b with y'' = Jy a + b."""

    value: Leaf
    rate: Leaf
    jacobian: Leaf
    bias: Leaf


def output_rate(system: AnySystem, output: Callable[[Any], Any], state: State) -> tuple[Vector, Vector]:
    """Return y and y' (ny,).

    Args:
        system: the mechanical system, whose `retract` defines how v moves q.
        output: y(q).
        state: time (s), coordinates and velocities.

    Raises:
        TypeError: the output is not callable, or does not return an array.
        ValueError: the output does not return a vector.
    """
    return along_motion(system, checked_state(state), _of_time(output))


def output_motion(system: AnySystem, output: Callable[[Any], Any], state: State) -> OutputMotion:
    """Return an output with its rate, Jacobian and bias; arguments and errors as in `output_rate`.

    Warns:
        StateWarning: the state violates the constraints. Checked for concrete arguments only, not under
            `jit`, `vmap` and `grad`; use `jaxdae.state_status` there.
    """
    state = checked_state(state)
    seen = _of_time(output)
    place = uniform_motion(system, state.t, state.q, state.v)
    zero, one = jnp.zeros_like(state.t), jnp.ones_like(state.t)
    (y, rate), (_, bias) = jax.jvp(
        lambda s: jax.jvp(lambda r: seen(*place(r)), (s,), (one,)), (zero,), (one,)
    )
    report_state("output_motion", system, state, y)
    return OutputMotion(y, rate, output_jacobian(system, state, output), bias)


def output_jacobian(system: AnySystem, state: State, output: Callable[[Any], Any]) -> Float[Array, "ny nv"]:
    """Return the derivative of an output y(q) with respect to the tangent at q (ny, nv).

    Args:
        system: the mechanical system, whose `retract` defines the tangent.
        state: time (s), coordinates and velocities; only the coordinates matter.
        output: y(q).
    """
    return jax.jacfwd(lambda xi: output(system.retract(state.q, xi)))(jnp.zeros_like(state.v))


def along_motion(system: AnySystem, state: State, function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """Return a function of (t, q) and its rate at a state, along the motion of time and coordinates.

    Args:
        system: the mechanical system, whose `retract` defines how v moves q.
        state: time (s), coordinates and velocities.
        function: (t, q) -> an array.
    """
    place = uniform_motion(system, state.t, state.q, state.v)
    return jax.jvp(lambda s: function(*place(s)), (jnp.zeros_like(state.t),), (jnp.ones_like(state.t),))


def checked_vector(what: str, value: Any) -> Any:
    """Return the result of a function after a check that it is a vector.

    Args:
        what: the function, for the message.
        value: its result.

    Raises:
        TypeError: not an array.
        ValueError: not a vector.
    """
    if not hasattr(value, "shape"):
        raise TypeError(f"{what} must return an array, got {type(value).__name__}; use jnp.stack([...])")
    if len(value.shape) != 1:
        raise ValueError(
            f"{what} must return a vector, got shape {value.shape}; use jnp.stack([...]) for numbers"
        )
    return value


def _of_time(output: Callable[[Any], Any]) -> Callable[[Any, Any], Vector]:
    """Return an output as a function of (t, q) that checks its result."""
    if not callable(output):
        raise TypeError(
            "output must be a pytree with __call__(q), such as Coordinates((2,)); got "
            f"{type(output).__name__}"
        )
    return lambda t, q: checked_vector("output(q)", output(q))


def reference_motion(reference: Any, t: Any, like: Vector) -> tuple[Vector, Vector, Vector]:
    """Return a reference and its first two derivatives, each with the shape of the output.

    Args:
        reference: a constant array (ny,) or number, or a pytree with `__call__(t)`, twice differentiable.
        t: time in s.
        like: the output (ny,).

    Raises:
        ValueError: a shape that does not fit the output.
    """

    def value(s: Any) -> Any:
        given = jnp.asarray(reference(s) if callable(reference) else reference, like.dtype)
        if given.shape not in ((), like.shape):
            raise ValueError(
                f"reference must have the shape of the output {like.shape}, or be a number; got shape "
                f"{given.shape}"
            )
        return jnp.broadcast_to(given, like.shape)

    t = jnp.asarray(t, like.dtype)
    if not callable(reference):
        return value(t), jnp.zeros_like(like), jnp.zeros_like(like)
    one = jnp.ones_like(t)
    (y, rate), (_, second) = jax.jvp(lambda s: jax.jvp(value, (s,), (one,)), (t,), (one,))
    return y, rate, second


def apply_gain(name: str, gain: Any, error: Vector) -> Any:
    """Return the gain times the error: elementwise for a number or (ny,), as a matrix product for (nu, ny).

    Raises:
        ValueError: wrong shape.
    """
    gain = jnp.asarray(gain, error.dtype)
    size = error.shape[0]
    if gain.shape in ((), (size,)):
        return gain * error
    if gain.ndim == 2 and gain.shape[1] == size:
        return gain @ error
    raise ValueError(f"{name} must be a number, or of shape ({size},) or (nu, {size}), got {gain.shape}")
