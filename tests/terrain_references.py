"""Published and closed-form problems of wheels in space, as mechanisms; the files are in
`tests/reference/vehicles`.

Each function returns the mechanism, its start, the times of the file, and what is compared there: a function
of a state, and its values.
"""

import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import problems

import jaxdae as jd
from jaxdae import mechanisms as jm
from jaxdae import vehicles as jv
from jaxdae.mechanisms import spatial as js


class Problem(NamedTuple):
    """A system, its start, and what becomes of it: times (k,), what is seen of a state, and that at the
    times.
    """

    system: Any
    start: jd.State
    t: np.ndarray
    seen: Callable[[Any, jd.State], Any]
    expected: np.ndarray


@functools.cache
def file(name: str) -> dict[str, Any]:
    """Returns a file of `tests/reference/vehicles`."""
    return json.loads((problems.REFERENCE / "vehicles" / f"{name}.json").read_text())


def states(name: str) -> list[dict[str, Any]]:
    """Returns the states after the start."""
    return [state for state in file(name)["reference"]["states"] if state["t"] > 0.0]


def near(angle: Any, other: Any) -> Any:
    """Returns an angle with as many full turns as another one has."""
    return angle + 2.0 * np.pi * np.round((other - angle) / (2.0 * np.pi))


def upright_wheel(name: str) -> Problem:
    """Returns `wheel_in_trough` or `wheel_on_sine_road`: a disc in the plane of x and z.

    Joint coordinates x, y and angle of a planar joint hold it upright, so that its lateral row is zero and is
    switched off.
    """
    given = file(name)
    p, (q, v) = given["parameters"], (given["initial_conditions"][key] for key in "qv")
    terrain = (
        jv.Cylinder(-p["R"])
        if name == "wheel_in_trough"
        else jv.Hills(*(jnp.array([x]) for x in (p["A"], p["K"], 0.0, 0.0)))
    )
    at = (q[0], 0.0, q[1])
    mechanism, start = jm.spatial_mechanism(
        [js.Body("wheel", p["m"], (p["I"],) * 3, at)],
        [
            js.Planar("upright", "ground", "wheel", (0, 1, 0), point_a=(0, 0, 0), point_b=(0, 0, 0)),
            js.RollingDisc("road", "ground", "wheel", (0, 1, 0), at, radius=p["r"], terrain=terrain),
        ],
        gravity=(0.0, 0.0, -p["g"]),
        coordinates=jm.Joints(),
    )
    system = jd.Masked(mechanism, jnp.array([row != "road.lateral" for row in mechanism.names.rows]))

    def seen(system: Any, state: jd.State) -> Any:
        frame, twist = (
            jax.tree.map(lambda x: x[0], x) for x in (system.frames(state.q), system.twists(state.q, state.v))
        )
        return jnp.stack([frame.x, frame.z, twist.x, twist.z, twist.wy])

    def rates(v: Any) -> Any:
        return seen(mechanism, jd.State(0.0, start, v))[2:]

    velocities = jnp.linalg.solve(jax.jacfwd(rates)(jnp.zeros(3)), jnp.asarray(v[:3]))
    later = states(name)
    expected = np.array([[*state["qv"][:2], *state["qv"][len(q) : len(q) + 3]] for state in later])
    return Problem(
        system,
        jd.State(jnp.asarray(0.0), start, velocities),
        np.array([s["t"] for s in later]),
        seen,
        expected,
    )


def seen_body(system: Any, state: jd.State) -> Any:
    """Returns place, rotation matrix, velocity and omega in the world of the last body (18,)."""
    frame, twist = (
        jax.tree.map(lambda x: x[-1], x) for x in (system.frames(state.q), system.twists(state.q, state.v))
    )
    return jnp.concatenate([jnp.stack(frame), jnp.stack(twist[:3]), twist.omega_world(frame).array()])


def disk(name: str) -> Problem:
    """Returns `disk_steady_circle` or `disk_transient`: a disc on a plane, its axle along y of the body."""
    given = file(name)
    p, start = given["parameters"], given["initial_conditions"]
    inertia = p["I_diametral"], p["J_axial"], p["I_diametral"]
    mechanism, q = jm.spatial_mechanism(
        [js.Body("disk", p["m"], inertia, start["position"], start["quat_wb"])],
        [
            js.RollingDisc(
                "contact", "ground", "disk", (0, 1, 0), point_b=(0, 0, 0), radius=p["r"], terrain=jv.Plane()
            )
        ],
        gravity=(0.0, 0.0, -p["g"]),
    )
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    v = jnp.concatenate([jnp.asarray(start["v"]), frame.components_of(start["omega_world"])])
    later = states(name)
    expected = [
        np.concatenate([np.ravel(state[key]) for key in ("position", "rotation", "v", "omega_world")])
        for state in later
    ]
    return Problem(
        mechanism,
        jd.State(jnp.asarray(0.0), q, v),
        np.array([s["t"] for s in later]),
        seen_body,
        np.array(expected),
    )


def turntable() -> Problem:
    """Returns `ball_turntable_flat`: a sphere on a table that turns as it is told to."""
    given = file("ball_turntable_flat")
    p, start = given["parameters"], given["initial_conditions"]
    inertia = p["k"] * p["m"] * p["a"] ** 2
    mechanism, q = jm.spatial_mechanism(
        [
            js.Body("table", 5.0, (1.0, 1.0, 1.0)),
            js.Body("ball", p["m"], (inertia,) * 3, start["position"], start["quat_wb"]),
        ],
        [
            js.Revolute("bearing", "ground", "table", (0, 0, 1), (0, 0, 0)),
            js.PrescribedMotion("motor", "bearing", jm.Polynomial((0.0, p["Omega"]))),
            js.RollingSphere(
                "contact", "table", "ball", point_b=(0, 0, 0), radius=p["a"], terrain=jv.Plane()
            ),
        ],
        gravity=(0.0, 0.0, -p["g"]),
        coordinates=jm.Joints(),
    )
    wanted = jnp.zeros(7).at[0].set(p["Omega"]).at[1:].set(jnp.asarray([*start["v"], *start["omega_world"]]))
    later = states("ball_turntable_flat")
    expected = np.array([state["position_v_omega"] for state in later])
    take = np.array([0, 1, 2, 12, 13, 14, 15, 16, 17])
    t = np.array([s["t"] for s in later])
    return Problem(
        mechanism,
        jd.State(jnp.asarray(0.0), q, wanted),
        t,
        lambda system, state: seen_body(system, state)[take],
        expected,
    )


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "wheel_in_trough": lambda: upright_wheel("wheel_in_trough"),
    "wheel_on_sine_road": lambda: upright_wheel("wheel_on_sine_road"),
    "disk_steady_circle": lambda: disk("disk_steady_circle"),
    "disk_transient": lambda: disk("disk_transient"),
    "ball_turntable_flat": turntable,
}
