"""How fast are vehicles in the plane, beside a loop that somebody writes by hand for one of them?

CommonRoad's kinematic single track (KS) in single precision, Runge-Kutta of order 4, many cars at once, four ways: a loop over its
right-hand side with `jax.vmap` and no checks; `KinematicSingleTrack` in `rollout`, which watches every step; `bicycle` as a mechanism of
first order, rows and drives; and that embedded. Each is timed in turn, best of several, in CPU seconds of the process; then gradients of
a loss of the last places with respect to all inputs over the time of the forward pass. Where CommonRoad's Python package
`vehiclemodels` is installed its right-hand side is timed too.

    python experiments/benchmarks/vehicles.py [--cars 10000] [--steps 50] [--mechanisms]
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# One thread, so that ratios are those of the programs and not of what else runs here.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp

import jaxdae
from jaxdae import mechanisms, vehicles

WHEELBASE, DT, REPEATS = 2.5, 0.01, 5
METHOD = jaxdae.Kinematic.rk4()


def by_hand(x: Any, u: Any, steps: int) -> Any:
    """Returns the state of KS after steps with inputs (2,), by a loop that knows nothing but it."""

    def rate(x: Any) -> Any:
        return jnp.stack([x[3] * jnp.cos(x[4]), x[3] * jnp.sin(x[4]), u[0], u[1], x[3] * jnp.tan(x[2]) / WHEELBASE])

    def step(x: Any, _: Any) -> Any:
        k1 = rate(x)
        k2 = rate(x + 0.5 * DT * k1)
        k3 = rate(x + 0.5 * DT * k2)
        k4 = rate(x + DT * k3)
        return x + DT / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

    return jax.lax.scan(step, x, None, length=steps)[0]


def by_rollout(system: Any, x: Any, u: Any, steps: int) -> Any:
    """Returns the coordinates of a system of first order after steps with inputs (nu,)."""
    start = jaxdae.State(jnp.zeros((), x.dtype), x, jnp.zeros_like(x))
    run = jaxdae.rollout(system, METHOD, start, jnp.broadcast_to(u, (steps, *u.shape)), dt=DT, save_every=steps)
    return run.state.q[-1]


def ways(steps: int, with_mechanisms: bool) -> dict[str, Callable[[Any, Any], Any]]:
    """Returns the ways to move a car, each from a state of KS and its inputs."""
    single = vehicles.KinematicSingleTrack(WHEELBASE)
    found: dict[str, Callable[[Any, Any], Any]] = {
        "by hand": lambda x, u: by_hand(x, u, steps),
        "KinematicSingleTrack": lambda x, u: by_rollout(single, x, u, steps),
    }
    if with_mechanisms:
        mechanism, _ = mechanisms.kinematic_mechanism(vehicles.bicycle(WHEELBASE), mechanisms.Joints())
        for name, system in (("bicycle, a mechanism", mechanism), ("bicycle, embedded", mechanisms.Embedded(mechanism))):
            # Its coordinates are (x, y, heading, steering), its inputs speed and steering rate.
            found[name] = lambda x, u, system=system: by_rollout(
                system, jnp.stack([x[0], x[1], x[4], x[2]]), jnp.stack([x[3], u[0]]), steps
            )
    return found


def best(function: Callable[..., Any], *arguments: Any) -> float:
    """Returns the CPU seconds of a call."""
    begun = time.process_time()
    jax.block_until_ready(function(*arguments))
    return time.process_time() - begun


def main() -> int:
    """Prints the times; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cars", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--mechanisms", action="store_true", help="the mechanisms too, which take longer to compile")
    asked = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), 3)
    zero = jnp.zeros((asked.cars, 1), jnp.float32)
    steering, speed = (0.1 * jax.random.normal(key, (asked.cars, 1)) for key in keys[:2])
    x = jnp.concatenate([zero, zero, steering, 5.0 + 10.0 * speed, zero], axis=1)
    u = 0.1 * jax.random.normal(keys[2], (asked.cars, 2))
    forward, backward = {}, {}
    for name, way in ways(asked.steps, asked.mechanisms).items():
        forward[name] = jax.jit(jax.vmap(way))
        backward[name] = jax.jit(jax.grad(lambda u, way=way: jnp.sum(jax.vmap(way)(x, u)[:, :2] ** 2)))
        compiling = -time.process_time()
        jax.block_until_ready((forward[name](x, u), backward[name](u)))
        print(f"{name}: compiled with its gradient in {compiling + time.process_time():.1f} CPU s", flush=True)
    times = {name: [] for name in forward}
    gradients = {name: [] for name in forward}
    for _ in range(REPEATS):
        for name in forward:
            times[name].append(best(forward[name], x, u))
            gradients[name].append(best(backward[name], u))
    print(f"{asked.cars} cars, {asked.steps} steps, {jax.devices()[0].platform}, float32, one thread")
    reference = min(times["by hand"])
    for name in forward:
        one, back = min(times[name]), min(gradients[name])
        speed_of = asked.cars * asked.steps / one / 1e6
        print(f"{name:24} {speed_of:7.2f} M car-steps/s   {reference / one:5.2f} of by hand   gradient {back / one:.1f} times forward")
    _commonroad()
    return 0


def _commonroad() -> None:
    try:
        dynamics = importlib.import_module("vehiclemodels.vehicle_dynamics_ks").vehicle_dynamics_ks
        parameters = importlib.import_module("vehiclemodels.parameters_vehicle1").parameters_vehicle1()
    except ImportError:
        print("CommonRoad's right-hand side: the package commonroad-vehicle-models is not installed")
        return
    count, begun = 20_000, time.process_time()
    for _ in range(count):
        dynamics([0.0, 0.0, 0.1, 5.0, 0.0], [0.1, 0.2], parameters)
    print(f"CommonRoad's right-hand side in Python: {1e6 * (time.process_time() - begun) / count:.2f} us a call")


if __name__ == "__main__":
    sys.exit(main())
