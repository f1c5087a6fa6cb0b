"""How fast are vehicles, beside a loop that somebody writes by hand for one of them?

CommonRoad's kinematic single track (KS) in single precision, Runge-Kutta of order 4, many cars at once: a
loop over its right-hand side with `jax.vmap` and no checks; `KinematicSingleTrack` in `rollout`, which
watches every step; with `--mechanisms` also `bicycle` as a mechanism of first order, rows and drives, and
that embedded. Beside them a car of four wheels whose front wheels fight, `vehicle_twist` with least residual
in such a loop, in one whose steps reverse mode makes again instead of keeping what they are made of, as
`rollout` does, and as the rate of a system in a loop over `Kinematic.rk4().step`, which does so by itself.
Each is timed in turn, best of several, in CPU seconds of the process; then gradients of the sum of squares of
where it ends with respect to all inputs, over the time of the forward pass. Where CommonRoad's Python package
`vehiclemodels` is installed (commonroad-vehicle-models) the right-hand sides of its models are timed too,
from the kinematic one to that of many bodies.

With `--rover`: pose and velocity of a six-wheel rover on hills, double precision, each of 1024 worlds, and
gradients with respect to place, heading and spins. With `--whipple`: the Whipple bicycle, four bodies in
absolute coordinates in double precision, one world, steps of Runge-Kutta and `Projection()` in `rollout`, and
what they take to trace and compile, with stages by themselves and in a loop.

    python experiments/benchmarks/vehicles.py [--cars 10000] [--steps 50] [--mechanisms] [--rover] [--whipple]
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

# One thread, so that ratios are those of the programs and not of what else runs here.
os.environ["XLA_FLAGS"] = (
    f"--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 {os.environ.get('XLA_FLAGS', '')}"
)

import jax
import jax.numpy as jnp

import jaxdae
from jaxdae import mechanisms, vehicles

WHEELBASE, TRACK, DT, REPEATS, ROVERS = 2.5, 1.5, 0.01, 7, 1024
METHOD = jaxdae.Kinematic.rk4()

Way = tuple[Callable[..., Any], tuple[Any, ...]]


def runge_kutta(rate: Callable[[Any], Any], x: Any, steps: int, again: bool = False) -> Any:
    """Return x after steps of the method of order 4, by a loop that knows nothing but the rate.

    Reverse mode may make steps again.
    """

    def step(x: Any, _: Any) -> Any:
        k1 = rate(x)
        k2 = rate(x + 0.5 * DT * k1)
        k3 = rate(x + 0.5 * DT * k2)
        k4 = rate(x + DT * k3)
        return x + DT / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4), None

    return jax.lax.scan(jax.checkpoint(step) if again else step, x, None, length=steps)[0]


def by_hand(x: Any, u: Any, steps: int) -> Any:
    """Return the state of KS after steps with inputs (2,)."""

    def rate(x: Any) -> Any:
        return jnp.stack(
            [x[3] * jnp.cos(x[4]), x[3] * jnp.sin(x[4]), u[0], u[1], x[3] * jnp.tan(x[2]) / WHEELBASE]
        )

    return runge_kutta(rate, x, steps)


@jaxdae.tree.pytree
class FourWheels(jaxdae.KinematicSystem):
    """A car (x, y, heading, two steering angles) with front wheels in conflict.

    The inputs are the speed and two steering rates.
    """

    n_inputs = 3

    def rate(self, t: Any, x: Any, u: Any) -> Any:
        """Return x' (5,)."""
        half = 0.5 * TRACK
        places = jnp.asarray([[WHEELBASE, half], [WHEELBASE, -half], [0.0, half], [0.0, -half]], x.dtype)
        steering = jnp.concatenate([x[3:], jnp.zeros((2,), x.dtype)])
        (ahead, left, turning), _ = vehicles.vehicle_twist(
            vehicles.wheels(places, steering=steering), speed=u[0]
        )
        cos, sin = jnp.cos(x[2]), jnp.sin(x[2])
        return jnp.stack([cos * ahead - sin * left, sin * ahead + cos * left, turning, u[1], u[2]])


def four_wheels(x: Any, u: Any, steps: int, again: bool) -> Any:
    """Return (x, y, heading, two steering angles) after steps with inputs (speed, two steering rates)."""
    return runge_kutta(lambda x: FourWheels().rate(0.0, x, u), x, steps, again)


def by_steps(system: Any, x: Any, u: Any, steps: int) -> Any:
    """Return the coordinates of a first-order system after steps with inputs (nu,), by a loop over steps."""
    start = jaxdae.State(jnp.zeros((), x.dtype), x, jnp.zeros_like(x))
    return jax.lax.scan(
        lambda state, _: (METHOD.step(system, state, (), u, DT)[0], None), start, None, length=steps
    )[0].q


def by_rollout(system: Any, x: Any, u: Any, steps: int) -> Any:
    """Return the coordinates of a system of first order after steps with inputs (nu,)."""
    start = jaxdae.State(jnp.zeros((), x.dtype), x, jnp.zeros_like(x))
    run = jaxdae.rollout(
        system, METHOD, start, jnp.broadcast_to(u, (steps, *u.shape)), dt=DT, save_every=steps
    )
    return run.state.q[-1]


def cars(count: int, steps: int, with_mechanisms: bool) -> dict[str, Way]:
    """Return the ways to move a car, each with the states and the inputs of all cars."""
    keys = jax.random.split(jax.random.key(0), 4)
    zero = jnp.zeros((count, 1), jnp.float32)
    steering, speed = (0.1 * jax.random.normal(key, (count, 1)) for key in keys[:2])
    x = jnp.concatenate([zero, zero, steering, 5.0 + 10.0 * speed, zero], axis=1)
    u = 0.1 * jax.random.normal(keys[2], (count, 2))
    single = vehicles.KinematicSingleTrack(WHEELBASE)
    found: dict[str, Way] = {
        "by hand": (lambda x, u: by_hand(x, u, steps), (x, u)),
        "KinematicSingleTrack": (lambda x, u: by_rollout(single, x, u, steps), (x, u)),
        "KS, its steps": (lambda x, u: by_steps(single, x, u, steps), (x, u)),
    }
    if with_mechanisms:
        mechanism, _ = mechanisms.kinematic_mechanism(vehicles.bicycle(WHEELBASE), mechanisms.Joints())
        # Its coordinates are (x, y, heading, steering), its inputs speed and steering rate.
        placed, rates = x[:, jnp.array([0, 1, 4, 2])], jnp.stack([x[:, 3], u[:, 0]], axis=1)
        for name, system in (
            ("bicycle, a mechanism", mechanism),
            ("bicycle, embedded", mechanisms.Embedded(mechanism)),
        ):
            found[name] = (lambda x, u, system=system: by_rollout(system, x, u, steps), (placed, rates))
            found[f"{name}, steps"] = (
                lambda x, u, system=system: by_steps(system, x, u, steps),
                (placed, rates),
            )
    angles = jnp.concatenate([zero, zero, zero, 0.1 * jax.random.normal(keys[3], (count, 2))], axis=1)
    fighting = (angles, jnp.concatenate([5.0 + 10.0 * speed, u], axis=1))
    for name, again in (("four wheels that fight", False), ("four wheels, made again", True)):
        found[name] = (lambda x, u, again=again: four_wheels(x, u, steps, again), fighting)
    found["four wheels, its steps"] = (lambda x, u: by_steps(FourWheels(), x, u, steps), fighting)
    return found


def rovers() -> dict[str, Way]:
    """Return the timed functions of a rover; all have the same differentiated arguments."""
    hills = vehicles.Hills(amplitudes=[0.10, 0.06], kx=[1.1, -0.7], ky=[0.6, 1.9], phase=[0.3, 1.0])
    mechanism, flat = mechanisms.mechanism(vehicles.rocker_bogie(hills), mechanisms.Joints())
    rover = vehicles.LeastSlip(mechanism, tuple(f"{wheel}.angle_rate" for wheel in vehicles.ROVER_WHEELS))
    place = jax.random.uniform(jax.random.key(0), (ROVERS, 2), minval=-3.0, maxval=3.0)
    yaw, spins = (
        jnp.linspace(-3.0, 3.0, ROVERS),
        jnp.tile(jnp.array([3.0, 3.0, 3.0, 4.0, 4.0, 4.0]), (ROVERS, 1)),
    )

    def pose(place: Any, yaw: Any) -> Any:
        return vehicles.place_on_terrain(mechanism, flat, place, yaw, suspension=vehicles.ROVER_SUSPENSION)[0]

    def velocity(q: Any, spins: Any) -> Any:
        return rover.motion(jnp.zeros(()), q, spins)[0]

    q = jax.jit(jax.vmap(pose))(place, yaw)
    return {
        "pose": (pose, (place, yaw)),
        "velocity": (velocity, (q, spins)),
        "pose and velocity": (
            lambda place, yaw, spins: velocity(pose(place, yaw), spins),
            (place, yaw, spins),
        ),
    }


def spent(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Return the CPU seconds of a call."""
    begun = time.process_time()
    jax.block_until_ready(function(*arguments))
    return time.process_time() - begun


def compared(
    ways: dict[str, Way], differentiated: Callable[[tuple[Any, ...]], tuple[int, ...]]
) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds of each way for all worlds, and those of its gradient."""
    forward, backward, arguments = {}, {}, {}
    for name, (way, given) in ways.items():
        every = jax.vmap(way)
        loss = lambda *given, every=every: jnp.sum(every(*given) ** 2)  # noqa: E731
        arguments[name] = given
        seconds = []
        for kept, function in ((forward, every), (backward, jax.grad(loss, argnums=differentiated(given)))):
            begun = time.process_time()
            kept[name] = jax.jit(function).lower(*given).compile()
            seconds.append(time.process_time() - begun)
        print(f"{name}: compiled in {seconds[0]:.1f}, its gradient in {seconds[1]:.1f} CPU s", flush=True)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, given in arguments.items():
            times[name].append((spent(forward[name], given), spent(backward[name], given)))
    return {name: tuple(min(column) for column in zip(*rows, strict=True)) for name, rows in times.items()}


def main() -> int:
    """Print the times and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cars", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument(
        "--mechanisms", action="store_true", help="the mechanisms too, which take longer to compile"
    )
    parser.add_argument("--rover", action="store_true", help="the rover on hills too")
    parser.add_argument("--whipple", action="store_true", help="the Whipple bicycle too")
    asked = parser.parse_args()
    found = compared(cars(asked.cars, asked.steps, asked.mechanisms), lambda given: (len(given) - 1,))
    print(f"{asked.cars} cars, {asked.steps} steps, {jax.devices()[0].platform}, float32, one thread")
    reference = found["by hand"][0]
    for name, (one, back) in found.items():
        speed = asked.cars * asked.steps / one / 1e6
        print(
            f"{name:27} {speed:7.2f} M car-steps/s   {reference / one:5.2f} of by hand   gradient "
            f"{back / one:.1f} times forward"
        )
    _commonroad()
    if asked.rover:
        with jax.enable_x64(True):
            for name, (one, back) in compared(rovers(), lambda given: tuple(range(len(given)))).items():
                each = 1e6 / ROVERS
                print(
                    f"rover, {name:18} {each * one:6.1f} us, gradient {each * back:6.1f} us, "
                    f"{back / one:.1f} times forward"
                )
    if asked.whipple:
        with jax.enable_x64(True):
            whipple()
    return 0


def whipple(steps: int = 2000) -> None:
    """Print how long the Whipple bicycle takes to compile and to step."""
    mechanism, q = mechanisms.mechanism(vehicles.whipple_bicycle())
    wanted = {"vx": 4.6, "omega_x": 0.5}
    v = jnp.asarray([wanted.get(name.rsplit(".", 1)[1], 0.0) for name in mechanism.names.velocities])
    start, _ = jaxdae.initialize(mechanism, q, v)
    for name, unroll in (("stages by themselves", True), ("stages in a loop", False)):
        method = jaxdae.Projected(jaxdae.RungeKutta.rk4(unroll=unroll), jaxdae.Projection())
        run = jax.jit(
            lambda state, method=method: jaxdae.rollout(
                mechanism, method, state, dt=1e-3, steps=steps, save_every=steps
            )
        )
        wall, begun = time.perf_counter(), time.process_time()
        compiled = run.lower(start).compile()
        wall, seconds = time.perf_counter() - wall, time.process_time() - begun
        jaxdae.raise_if_failed(compiled(start).info)
        best = min(spent(compiled, (start,)) for _ in range(REPEATS))
        print(
            f"Whipple bicycle, {name}: traced and compiled in {seconds:.1f} CPU s, {wall:.1f} s; a step "
            f"{1e6 * best / steps:.1f} us"
        )


def _commonroad() -> None:
    try:
        parameters = importlib.import_module("vehiclemodels.parameters_vehicle2").parameters_vehicle2()
    except ImportError:
        print("CommonRoad's right-hand sides: the package commonroad-vehicle-models is not installed")
        return
    # Place, steering angle, speed, heading, yaw rate and side slip; the larger models make their states of
    # it.
    core = [0.0, 0.0, 0.1, 5.0, 0.0, 0.1, 0.01]
    starts: dict[str, Callable[[], Any]] = {
        "ks": lambda: core[:5],
        "st": lambda: core,
        "std": lambda: importlib.import_module("vehiclemodels.init_std").init_std(core, parameters),
        "mb": lambda: importlib.import_module("vehiclemodels.init_mb").init_mb(core, parameters),
    }
    for model, start in starts.items():
        dynamics = getattr(
            importlib.import_module(f"vehiclemodels.vehicle_dynamics_{model}"), f"vehicle_dynamics_{model}"
        )
        x, count = start(), 5_000
        found = []
        for _ in range(REPEATS):
            begun = time.process_time()
            for _ in range(count):
                dynamics(x, [0.1, 0.2], parameters)
            found.append((time.process_time() - begun) / count)
        print(f"CommonRoad's right-hand side in Python, {model.upper():3}: {1e6 * min(found):7.2f} us a call")


if __name__ == "__main__":
    sys.exit(main())
