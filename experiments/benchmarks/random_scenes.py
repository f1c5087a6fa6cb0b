"""Throw random bodies at the ground: does every step with contact end with a solution, and without gaining energy?

    python experiments/benchmarks/random_scenes.py [--worlds 100] [--steps 400] [--kinds boxes legs] [--quick]

Each kind of scene is one mechanism with random sizes, masses (ratios up to 1000), friction, restitution,
orientations and velocities. The worlds of a kind run as one batch. The columns:

- NaN: worlds with a number that is not finite in a saved state;
- stopped: worlds with a status other than OK at the end, by status;
- gain: the largest increase of the energy in a step, in percent of the energy of the start above z = 0;
- residual: the largest residual of the contact law in a world that did not stop.
"""

import argparse
import collections
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae as jd
from jaxdae import contact
from jaxdae import mechanisms as jm
from jaxdae.geometry.terrain import Hills
from jaxdae.mechanisms import spatial as js
from jaxdae.systems.status import Status

Draw = Callable[[float, float], Any]
GRAVITY = (0.0, 0.0, -9.81)
STEP = 2e-3  # s


def body(name: str, mass: Any, size: float, place: Any) -> js.Body:
    """Return a body with the inertia of a solid ball of a radius."""
    return js.Body(name, mass, (0.4 * mass * size**2,) * 3, place=place)


def boxes(draw: Draw) -> jm.Description:
    """Return two boxes over a plane that also touch each other."""
    half = [tuple(draw(0.05, 0.15) for _ in range(3)) for _ in range(2)]
    bodies = [body("low", 1.0, 0.1, (0, 0, 0.4)), body("high", 10 ** draw(0, 3), 0.1, (0.02, 0.0, 0.9))]
    shapes = [contact.Box(x) for x in half]
    mu, e = draw(0.0, 1.2), 0.0
    pairs = [
        contact.Pair("low", jm.GROUND, "low", contact.Plane(), shapes[0], friction=mu, restitution=e),
        contact.Pair("high", jm.GROUND, "high", contact.Plane(), shapes[1], friction=mu, restitution=e),
        contact.Pair("both", "low", "high", *shapes, friction=mu, restitution=e),
    ]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=[], contacts=pairs, gravity=GRAVITY)


def round_bodies(draw: Draw, ground: Any = None) -> jm.Description:
    """Return two balls and a capsule over the ground, all of which touch each other."""
    radius = [draw(0.04, 0.12) for _ in range(3)]
    bodies = [
        body(name, mass, 0.08, place)
        for name, mass, place in zip(
            "abc",
            (1.0, 10 ** draw(-1.5, 1.5), 10 ** draw(-1.5, 1.5)),
            ((0, 0, 0.4), (0.03, 0.02, 0.75), (0, -0.03, 1.1)),
            strict=True,
        )
    ]
    shapes = dict(
        zip(
            "abc",
            [contact.Sphere(radius[0]), contact.Sphere(radius[1]), contact.Capsule(radius[2], 0.1)],
            strict=True,
        )
    )
    law = {"friction": draw(0.0, 1.2), "restitution": draw(0.0, 0.8)}
    ground = contact.Plane() if ground is None else ground
    pairs = [contact.Pair(f"ground {x}", jm.GROUND, x, ground, shapes[x], **law) for x in "abc"]
    pairs += [contact.Pair(x, x[0], x[1], shapes[x[0]], shapes[x[1]], **law) for x in ("ab", "ac", "bc")]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=[], contacts=pairs, gravity=GRAVITY)


def _hills(draw: Draw) -> Hills:
    return Hills(
        jnp.asarray([0.05, 0.03]), jnp.asarray([2.0, 1.0]), jnp.asarray([0.5, 3.0]), jnp.asarray([0.0, 1.0])
    )


def round_on_terrain(draw: Draw) -> jm.Description:
    """Return two balls and a capsule over hills."""
    return round_bodies(draw, _hills(draw))


def box_on_terrain(draw: Draw) -> jm.Description:
    """Return a box over hills."""
    bodies = [body("box", 1.0, 0.1, (0, 0, 0.5))]
    shape = contact.Box(tuple(draw(0.05, 0.15) for _ in range(3)))
    pairs = [contact.Pair("box", jm.GROUND, "box", _hills(draw), shape, friction=draw(0.0, 1.2))]
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=[], contacts=pairs, gravity=GRAVITY)


def legs(draw: Draw) -> jm.Description:
    """Return a trunk with two legs of two links: capsules as shanks, a box as trunk."""
    bodies, joints, pairs = [body("trunk", 10 ** draw(-1, 2), 0.15, (0, 0, 0.9))], [], []
    law = {"friction": draw(0.0, 1.2), "restitution": 0.0}
    trunk = contact.Box((0.15, 0.15, 0.05))
    pairs.append(contact.Pair("trunk", jm.GROUND, "trunk", contact.Plane(), trunk, **law))
    for side, y in (("left", 0.12), ("right", -0.12)):
        thigh, shank = f"{side} thigh", f"{side} shank"
        bodies += [
            body(thigh, 10 ** draw(-1, 0), 0.08, (0, y, 0.75)),
            body(shank, 10 ** draw(-1, 0), 0.08, (0, y, 0.45)),
        ]
        joints += [
            js.Revolute(f"{side} hip", "trunk", thigh, axis=(0, 1, 0), at=(0, y, 0.9)),
            js.Revolute(f"{side} knee", thigh, shank, axis=(0, 1, 0), at=(0, y, 0.6)),
        ]
        foot = contact.Capsule(0.03, 0.12)
        pairs.append(contact.Pair(side, jm.GROUND, shank, contact.Plane(), foot, **law))
        pairs.append(
            contact.Pair(
                f"{side} knee",
                jm.GROUND,
                thigh,
                contact.Plane(),
                contact.Sphere(0.03, at=(0, 0, -0.15)),
                **law,
            )
        )
    return jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, contacts=pairs, gravity=GRAVITY)


KINDS = {f.__name__: f for f in (boxes, round_bodies, round_on_terrain, box_on_terrain, legs)}
NUMBERS = 12
"""Random numbers per scene."""


def scene(kind: str, numbers: Any) -> tuple[Any, Any]:
    """Return the mechanism and its coordinates for random numbers (NUMBERS,) between 0 and 1."""
    left = iter(range(NUMBERS))

    def draw(low: float, high: float) -> Any:
        return low + (high - low) * numbers[next(left)]

    return jm.mechanism(KINDS[kind](draw), jm.Joints())


def starts(system: Any, q: Any, worlds: int, random: np.random.Generator) -> jd.State:
    """Return the starts: free bodies with random orientations, and random velocities."""
    q = np.repeat(np.asarray(q)[None], worlds, axis=0) if q.ndim == 1 else np.array(q)
    names = system.names.coordinates
    firsts = [k for k, name in enumerate(names) if name.endswith((".qw", ".e0", ".q0"))]
    for first in firsts:
        turn = random.normal(size=(worlds, 4))
        q[:, first : first + 4] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    v = random.normal(size=(worlds, len(system.names.velocities))) * 2.0
    return jd.State(jnp.zeros(worlds), jnp.asarray(q), jnp.asarray(v))


def run(kind: str, worlds: int, steps: int, seed: int, quick: bool) -> list[str]:
    """Return a row of the table."""
    random = np.random.default_rng(seed)
    numbers = jnp.asarray(random.uniform(size=(worlds, NUMBERS)))
    system, q = jax.jit(jax.vmap(lambda x: scene(kind, x)))(numbers)
    start = starts(system, q, worlds, random)
    solver = contact.Robust.quick() if quick else contact.Robust()
    method = contact.Touching(jd.RungeKutta.rk4(), contact_solver=solver)

    @jax.jit
    def simulated(system: Any, start: Any) -> Any:
        def one(system: Any, start: Any) -> Any:
            found = jd.rollout(system, method, start, dt=STEP, steps=steps)
            return (
                found,
                jax.vmap(lambda state: jd.energy(system, state))(found.state),
                jd.energy(system, start),
            )

        # One world after another: each takes as many solver iterations as it needs.
        return jax.lax.map(lambda world: one(*world), (system, start))

    began = time.perf_counter()
    compiled = simulated.lower(system, start).compile()
    middle = time.perf_counter()
    found, energy, first = jax.block_until_ready(compiled(system, start))
    seconds = time.perf_counter() - middle
    status = np.asarray(found.info.status)
    stopped = collections.Counter(Status(code).name for code in status[:, -1] if code)
    finite = np.isfinite(np.asarray(found.state.q)).all((1, 2)) & np.isfinite(np.asarray(found.state.v)).all(
        (1, 2)
    )
    energy = np.concatenate([np.asarray(first)[:, None], np.asarray(energy)], axis=1)
    gain = np.max(np.diff(energy, axis=1), axis=1) / energy[:, 0]
    residual = np.asarray(found.info.residual)[status == 0].max(initial=0.0)
    print(
        f"<!-- {kind}: worst worlds {np.argsort(gain)[-3:]}, stopped {np.flatnonzero(status[:, -1])[:8]} -->"
    )
    return [
        kind,
        str(worlds),
        str(len(found.info.gap[0, 0])),
        str(int((~finite).sum())),
        ", ".join(f"{name} {count}" for name, count in stopped.items()) or "0",
        f"{100 * gain.max():.1g}",
        f"{residual:.0e}",
        f"{middle - began:.0f}",
        f"{seconds:.0f}",
    ]


HEAD = ["scene", "worlds", "contacts", "NaN", "stopped", "gain, %", "residual", "compile, s", "run, s"]


def main() -> None:
    """Print the table."""
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", type=int, default=400)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--quick", action="store_true", help="without the interior-point method")
    given = parser.parse_args()
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    for kind in given.kinds:
        row = run(kind, given.worlds, given.steps, given.seed, given.quick)
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
