"""A stranger's first hour, as a program: what somebody tries in turn who has installed the wheel into an
empty environment.

    python first_hour.py        in an empty folder, with the Python of that environment; `make first-hour` does all of it

Every chapter ends with a number that is known from elsewhere: a closed form, a difference, another chapter.
It stops at the first that is off.
"""

import importlib.util
import pathlib
import subprocess
import sys
import time

COMMAND = str(pathlib.Path(sys.executable).parent / "jaxdae")

OWN_CONFIG = """
name: own
mechanism:
  bodies:
    - {name: rod, mass: 1.0, inertia: 0.08333333333333333, pose: [0.5, 0, 0]}
  joints:
    - {type: revolute, name: hinge, a: ground, b: rod, at: [0, 0]}
duration: 1.0
dt: 1.0e-3
batch: {size: 4, vary: [{path: bodies.rod.mass, distribution: normal, scatter: 0.1}]}
output: {overlay: [0, 0.5, 1.0]}
"""

OWN_ROBOT = """<?xml version="1.0"?>
<robot name="two_links">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0 -0.5"/><mass value="2"/>
    <inertia ixx="0.17" iyy="0.17" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/>
    <inertia ixx="0.09" iyy="0.09" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 -1"/><axis xyz="0 1 0"/></joint>
</robot>
"""


def command(*words: str) -> str:
    """Returns what the command prints; stops where it fails."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    expect(
        done.returncode == 0,
        f"jaxdae {' '.join(words)} exits with {done.returncode}:\n{done.stdout}{done.stderr}",
    )
    return done.stdout


def expect(holds: object, otherwise: str) -> None:
    """Stops with a sentence unless something holds."""
    if not holds:
        sys.exit(f"first hour: {otherwise}")


def an_example() -> None:
    """Lists the examples, looks into one and runs it."""
    expect("crank_rocker" in command("example"), "the list of examples lacks crank_rocker")
    path = command("example", "crank_rocker").strip()
    expect("mobility" in command("check", path), "check says nothing of the mobility")
    command("run", path, "--set", "duration=0.5", "--set", "output.overlay=[0, 0.5]")
    (folder,) = pathlib.Path("runs").glob("crank_rocker-*")
    expect(list((folder / "plots").glob("*.png")), "the run has no pictures")
    expect(
        "complete" in command("status", str(folder)) or (folder / "report.md").is_file(), "the run has no end"
    )


def own_config() -> None:
    """Writes a pendulum with a mistake, corrects it, and runs four of them; the first has the numbers of the
    config.
    """
    import numpy as np
    import xarray as xr

    pathlib.Path("own.yaml").write_text(OWN_CONFIG.replace("hinge, a: ground", "hinge, a: grund"))
    done = subprocess.run([COMMAND, "run", "own.yaml"], capture_output=True, text=True, check=False)
    expect(
        done.returncode == 2 and "did you mean 'ground'" in done.stderr,
        f"a misspelt body is not explained:\n{done.stderr}",
    )
    pathlib.Path("own.yaml").write_text(OWN_CONFIG)
    command("run", "own.yaml")
    (folder,) = pathlib.Path("runs").glob("own-*")
    q = xr.open_zarr(folder / "results.zarr").q.isel(time=-1)
    angles = np.asarray(q)[:, 2]
    # theta'' = -(3 g / 2 l) cos(theta), by Runge-Kutta steps of its own.
    y, h = np.zeros(2), 1e-3

    def slope(y: np.ndarray) -> np.ndarray:
        return np.array([y[1], -1.5 * 9.81 * np.cos(y[0])])

    for _ in range(1000):
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
    # Both are of order four with steps of 1 ms: h^4 times derivatives of some 1e3.
    expect(abs(angles[0] - y[0]) < 1e-8, f"the pendulum is at {angles[0]}, not at {y[0]} rad")
    expect(len(set(angles)) == 4, "the worlds of the batch do not differ")


def own_mechanism() -> None:
    """Builds a crank-slider in Python, runs a batch of it, and holds its gradient against differences."""
    import jax
    import jax.numpy as jnp

    import jaxdae
    from jaxdae import mechanisms as jm

    jax.config.update("jax_enable_x64", True)
    integrator = jaxdae.Projected(jaxdae.RungeKutta.rk4())

    def built(length):
        crank = jm.Body("crank", mass=1.0, inertia=1 / 12, pose=(0.5, 0.0, 0.0))
        slider = jm.Body("slider", mass=0.5, inertia=0.01, pose=(1.0 + length, 0.0, 0.0))
        joints = [
            jm.Revolute("pivot", jm.GROUND, "crank", at=(0.0, 0.0)),
            jm.Rod("coupler", "crank", "slider", at_a=(1.0, 0.0), at_b=(1.0 + length, 0.0)),
            jm.Prismatic("guide", jm.GROUND, "slider", axis=(1.0, 0.0), at=(1.0 + length, 0.0)),
        ]
        return jm.planar_mechanism(
            [crank, slider], joints, [jm.Torque("motor", jm.GROUND, "crank", torque=2.0)]
        )

    mechanism, q = built(2.0)
    start, _ = jaxdae.initialize(mechanism, q)
    expect(jaxdae.diagnose(mechanism, start).mobility == 1, "a crank-slider has one freedom")
    heavier = jaxdae.tree.set_leaf(
        mechanism, "gravity", jnp.linspace(0.0, 1.0, 64)[:, None] * mechanism.gravity
    )
    axes = (jaxdae.tree.batch_axes(heavier, "gravity"), None, None, None)
    worlds = jaxdae.batch_rollout(
        heavier, integrator, start, dt=2e-3, steps=100, save_every=100, in_axes=axes
    )
    jaxdae.raise_if_failed(worlds)
    alone = jaxdae.rollout(mechanism, integrator, start, dt=2e-3, steps=100, save_every=100)
    expect(
        jnp.abs(worlds.state.q[-1] - alone.state.q).max() < 1e-12,
        "the last of the worlds is not the mechanism by itself",
    )
    expect(worlds.info.violation.max() < 1e-12, "loops open")

    @jax.jit
    def slid(length):
        mechanism, q = built(length)
        state = jaxdae.State(t=0.0, q=q, v=0 * q)
        return jaxdae.rollout(mechanism, integrator, state, dt=2e-3, steps=100, save_every=100).state.q[-1, 3]

    slope = jax.grad(slid)(2.0)
    difference = (slid(2.0 + 1e-4) - slid(2.0 - 1e-4)) / 2e-4
    # Central differences: h^2 = 1e-8 of a third derivative of some 1, and round-off of 1e-12.
    expect(abs(slope - difference) < 1e-6, f"the gradient is {slope}, differences say {difference}")


def own_robot() -> None:
    """Writes a robot file and looks at it with the command and in Python: its mass matrix is that of a double
    pendulum.
    """
    import jax.numpy as jnp

    from jaxdae import mechanisms as jm
    from jaxdae import robots

    pathlib.Path("two_links.urdf").write_text(OWN_ROBOT)
    expect("shoulder" in command("check", "two_links.urdf"), "check does not know the joints of the file")
    description, start, _ = robots.load("two_links.urdf")
    mechanism, q = jm.mechanism(description, jm.Joints())
    state = robots.joint_state(mechanism, q, start | {"elbow": 0.7})
    far = 0.09 + 0.25  # of the lower link about the elbow, kg m^2
    coupled = far + 0.5 * jnp.cos(0.7)
    exact = jnp.array([[0.17 + 2 * 0.25 + 1.0 + far + jnp.cos(0.7), coupled], [coupled, far]])
    expect(
        jnp.abs(mechanism.mass_matrix(state.q) - exact).max() < 1e-12,
        "the mass matrix of the file is not that of two rods",
    )


def an_environment() -> None:
    """Steps a cart-pole, where this version has environments: what an action is worth, and its derivative."""
    if importlib.util.find_spec("jaxdae.envs") is None:
        print("    this version has no jaxdae.envs")
        return
    import jax
    import jax.numpy as jnp

    from jaxdae import envs

    task = envs.cart_pole()
    environment = envs.Environment(task)
    key = jax.random.key(0)
    state, observation = environment.reset(key)
    step = jax.jit(environment.step)
    before = observation
    for _ in range(3):
        found = step(key, state, 0.5 * jnp.ones(task.actions))
        expect(
            found.status == 0 and jnp.isfinite(found.reward),
            f"a step of the cart-pole has the status {found.status}",
        )
        state = found.state
    expect(jnp.abs(found.observation - before).max() > 1e-4, "nothing moves in the cart-pole")

    @jax.jit
    def seen(action):
        return jnp.sum(environment.step(key, state, action * jnp.ones(task.actions)).observation ** 2)

    slope, difference = jax.grad(seen)(0.5), (seen(0.501) - seen(0.499)) / 2e-3
    # In the precision of the environment, which may be single: a difference of 2e-3 of numbers known to 1e-7.
    expect(
        abs(slope - difference) < 1e-3 * (1 + abs(slope)),
        f"the gradient is {slope}, differences say {difference}",
    )


def main() -> None:
    """Runs all chapters, in the order in which somebody would."""
    for chapter in (an_example, own_config, own_mechanism, own_robot, an_environment):
        began = time.perf_counter()
        chapter()
        print(
            f"first hour: {chapter.__name__.replace('_', ' ')}: {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    print("first hour: passed")


if __name__ == "__main__":
    main()
