"""Time and errors of the inverse kinematics of a Delta robot: jaxdae, placo and pink on the same poses.

    pip install placo pin-pink daqp
    python experiments/benchmarks/delta_poses.py [POSES]

All engines start every pose at the pose of `models.delta`, and solve for the motor angles of random positions
of the platform. The platform moves freely, and six rods connect it to the arms. jaxdae solves all poses in one
compiled program. placo and pink solve one quadratic program per iteration and pose, until the largest change
of a coordinate is below 1e-10, or for 50 iterations. The rods are distances in jaxdae and in placo
(`add_distance_task`, hard). pink has no distances: its rods are bodies with two joints each, and soft tasks
hold their ends (`RelativeFrameTask` without orientation). Its `constraints` would also hold orientations.

Results of 10,000 poses on one busy core, with jaxdae, placo 0.10.2, and pink 4.4.0 with pinocchio 3.8.0 and
daqp 0.11.0. Setup contains compilation. Errors are median and largest values of the position of the platform, the
lengths of the rods, and the motor angles against the closed form:

| engine | setup, s | CPU time per pose, us | iterations, mean | platform, m | rods, m | motors, rad |
|---|---|---|---|---|---|---|
| jaxdae, one program | 11.1 | 358 | 6.8 | 0e+00, 6e-17 | 6e-17, 2e-16 | 4e-16, 9e-16 |
| placo, hard distances | 0.0 | 63 | 5.0 | 0e+00, 3e-18 | 6e-17, 2e-16 | 4e-16, 1e-15 |
| pink, loops as tasks | 0.0 | 2546 | 5.0 | 0e+00, 5e-20 | 1e-16, 3e-16 | 4e-16, 2e-15 |

placo is the fastest on a CPU. One iteration of jaxdae takes 52 us, of which 17 us are the Jacobian and 13 us
the two singular value decompositions. Its program ends with the slowest pose of the batch.
"""

import itertools
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import kinematics, models

BASE, PLATFORM, ARM, FOREARM, WIDTH, ANGLE = 0.2, 0.06, 0.25, 0.5, 0.08, 0.3
TURNS = 2.0 * np.pi / 3.0 * np.arange(3)
ITERATIONS, CHANGE = 50, 1e-10
START = -ARM * np.sin(ANGLE) - np.sqrt(FOREARM**2 - (PLATFORM - BASE - ARM * np.cos(ANGLE)) ** 2)


def motor_angles(p):
    """Return the angles (n, 3) for positions (n, 3) of the platform, with elbows outward, in closed form."""
    u = p[:, :1] * np.cos(TURNS) + p[:, 1:2] * np.sin(TURNS) + PLATFORM - BASE
    s = p[:, 1:2] * np.cos(TURNS) - p[:, :1] * np.sin(TURNS)
    k = (u**2 + s**2 + p[:, 2:] ** 2 + ARM**2 - FOREARM**2) / (2.0 * ARM)
    return -np.arctan2(p[:, 2:], u) - np.arccos(k / np.hypot(u, p[:, 2:]))


def rod_errors(angles, place, rotation):
    """Return the largest error of the rod lengths (n,) in m, for angles (n, 3) and poses of the platform."""
    outward = np.stack([np.cos(TURNS), np.sin(TURNS), 0.0 * TURNS], axis=1)
    tangent = np.stack([-np.sin(TURNS), np.cos(TURNS), 0.0 * TURNS], axis=1)
    elbow = (BASE + ARM * np.cos(angles))[..., None] * outward
    elbow = elbow - ARM * np.sin(angles)[..., None] * np.array([0.0, 0.0, 1.0])
    gaps = []
    for side in (-0.5, 0.5):
        anchor = PLATFORM * outward + side * WIDTH * tangent
        end = place[:, None] + np.einsum("nij,kj->nki", rotation, anchor)
        gaps.append(np.linalg.norm(end - elbow - side * WIDTH * tangent, axis=2) - FOREARM)
    return np.max(np.abs(gaps), axis=(0, 2))


def with_jaxdae(positions):
    """Return seconds of compilation and per pose, angles, and place and rotation of the platform."""
    robot, start = models.delta()
    motors = jnp.array([robot.names.coordinates.index(f"motor{k}.angle") for k in (1, 2, 3)])
    body = robot.body_names.index("platform")

    @jax.jit
    @jax.vmap
    def solve(position):
        state, info = kinematics.inverse_kinematics(robot, kinematics.PoseTarget("platform", position), start)
        frame = jnp.stack(list(robot.frames(state.q)))[:, body]
        return state.q[motors], frame, info.iterations

    begun = time.process_time()
    program = solve.lower(positions).compile()
    compiled = time.process_time()
    angles, frames, count = map(np.asarray, jax.block_until_ready(program(positions)))
    spent = time.process_time() - compiled
    return compiled - begun, spent, angles, frames[:, :3], frames[:, 3:].reshape(-1, 3, 3), count


def urdf(rods):
    """Return a Delta robot without closed loops: arms, a free platform, and rods on the arms if asked."""
    links, joints = ["base", "platform"], []

    def joint(name, kind, parent, child, at=(0, 0, 0), turn=0.0, axis=(0, 0, 1)):
        links.append(child)
        origin = f'<origin xyz="{" ".join(f"{x:.17g}" for x in at)}" rpy="0 0 {turn:.17g}"/>'
        rest = f'<axis xyz="{" ".join(map(str, axis))}"/>' if kind != "fixed" else ""
        bound = '<limit lower="-9" upper="9" effort="1e9" velocity="1e9"/>' if kind == "prismatic" else ""
        joints.append(
            f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>'
            f"{origin}{rest}{bound}</joint>"
        )

    steps = [("x", "prismatic", (1, 0, 0)), ("y", "prismatic", (0, 1, 0)), ("z", "prismatic", (0, 0, 1))]
    steps += [
        ("rx", "continuous", (1, 0, 0)),
        ("ry", "continuous", (0, 1, 0)),
        ("rz", "continuous", (0, 0, 1)),
    ]
    parent = "base"
    for name, kind, axis in steps:
        child = "platform" if name == "rz" else f"to_{name}"
        joint(f"p{name}", kind, parent, child, axis=axis)
        parent = child
    links.remove("platform")
    for k, turn in enumerate(TURNS):
        at = (BASE * np.cos(turn), BASE * np.sin(turn), 0.0)
        joint(f"motor{k}", "continuous", "base", f"arm{k}", at, turn, (0, 1, 0))
        for side, name in ((-0.5, "a"), (0.5, "b")):
            rod = f"{k}{name}"
            on_platform = (
                PLATFORM * np.cos(turn) - side * WIDTH * np.sin(turn),
                PLATFORM * np.sin(turn) + side * WIDTH * np.cos(turn),
                0.0,
            )
            joint(f"fix_p{rod}", "fixed", "platform", f"on_platform{rod}", on_platform, turn)
            joint(f"fix_a{rod}", "fixed", f"arm{k}", f"on_arm{rod}", (ARM, side * WIDTH, 0.0))
            if rods:
                joint(f"swing{rod}", "continuous", f"on_arm{rod}", f"fork{rod}", axis=(0, 1, 0))
                joint(f"tilt{rod}", "continuous", f"fork{rod}", f"rod{rod}", axis=(1, 0, 0))
                joint(f"fix_r{rod}", "fixed", f"rod{rod}", f"end{rod}", (0.0, 0.0, -FOREARM))
    inertia = '<inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/>'
    body = f'<inertial><mass value="0.1"/>{inertia}</inertial>'
    parts = [f'<link name="{name}">{body}</link>' for name in dict.fromkeys(links)]
    return f'<robot name="delta">{"".join(parts + joints)}</robot>'


def with_placo(positions):
    """Return seconds of the setup and of all poses, angles, and place and rotation of the platform."""
    import placo

    begun = time.process_time()
    robot = placo.RobotWrapper("delta.urdf", 0, urdf(rods=False))
    solver = placo.KinematicsSolver(robot)
    solver.mask_fbase(True)
    solver.enable_joint_limits(False)
    for k in range(3):
        for name in "ab":
            rod = solver.add_distance_task(f"on_arm{k}{name}", f"on_platform{k}{name}", FOREARM)
            rod.configure(f"rod{k}{name}", "hard", 1.0)
    tool = solver.add_position_task("platform", np.zeros(3))
    tool.configure("platform", "soft", 1.0)
    robot.reset()
    robot.set_joint("pz", START)
    for k in range(3):
        robot.set_joint(f"motor{k}", ANGLE)
    robot.update_kinematics()
    start = robot.state.q.copy()
    found, ready = [], time.process_time()
    for position in positions:
        robot.state.q = start.copy()
        robot.update_kinematics()
        tool.target_world = position
        for count in itertools.count(1):
            change = solver.solve(True)
            robot.update_kinematics()
            if np.max(np.abs(change)) < CHANGE or count == ITERATIONS:
                break
        frame = robot.get_T_world_frame("platform")
        found.append((np.array([robot.get_joint(f"motor{k}") for k in range(3)]), frame, count))
    spent = time.process_time() - ready
    angles, frames, counts = (np.stack(x) for x in zip(*found, strict=True))
    return ready - begun, spent, angles, frames[:, :3, 3], frames[:, :3, :3], counts


def with_pink(positions):
    """Return the same as `with_placo`."""
    import pinocchio as pin
    from pink import Configuration, solve_ik
    from pink.tasks import FrameTask, RelativeFrameTask

    begun = time.process_time()
    model = pin.buildModelFromXML(urdf(rods=True))
    data = model.createData()
    loops = []
    for k in range(3):
        for name in "ab":
            task = RelativeFrameTask(f"end{k}{name}", f"on_platform{k}{name}", 1e3, 0.0)
            task.set_target(pin.SE3.Identity())
            loops.append(task)
    tool = FrameTask("platform", 1.0, 0.0)
    q = pin.neutral(model)

    def place(name, value):
        joint = model.joints[model.getJointId(name)]
        pair = [np.cos(value), np.sin(value)] if joint.nq == 2 else [value]
        q[joint.idx_q : joint.idx_q + joint.nq] = pair

    place("pz", START)
    swing = np.arctan2(PLATFORM - BASE - ARM * np.cos(ANGLE), -(START + ARM * np.sin(ANGLE)))
    for k in range(3):
        place(f"motor{k}", ANGLE)
        for name in "ab":
            place(f"swing{k}{name}", -swing - ANGLE)
    found, ready = [], time.process_time()
    for position in positions:
        now = Configuration(model, data, q)
        target = pin.SE3.Identity()
        target.translation = position
        tool.set_target(target)
        for count in itertools.count(1):
            change = solve_ik(now, [tool, *loops], 1.0, solver="daqp", damping=1e-12, limits=[])
            now.integrate_inplace(change, 1.0)
            if np.max(np.abs(change)) < CHANGE or count == ITERATIONS:
                break
        frame = now.get_transform_frame_to_world("platform")
        joints = [model.joints[model.getJointId(f"motor{k}")].idx_q for k in range(3)]
        turns = np.array([np.arctan2(now.q[i + 1], now.q[i]) for i in joints])
        found.append((turns, frame.translation.copy(), frame.rotation.copy(), count))
    spent = time.process_time() - ready
    return (ready - begun, spent, *(np.stack(x) for x in zip(*found, strict=True)))


def main() -> None:
    """Solve the poses with all engines and print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])  # One core, before JAX starts its threads.
    jax.config.update("jax_enable_x64", True)
    positions = np.random.default_rng(0).uniform((-0.15, -0.15, -0.55), (0.15, 0.15, -0.35), (count, 3))
    exact = motor_angles(positions)
    engines = {
        "jaxdae, one program": with_jaxdae,
        "placo, hard distances": with_placo,
        "pink, loops as tasks": with_pink,
    }
    print(
        "| engine | setup, s | CPU time per pose, us | iterations, mean | platform, m | rods, m | motors, rad |"
    )
    for name, solve in engines.items():
        try:
            setup, spent, angles, place, rotation, iterations = solve(positions)
        except ImportError as error:
            print(f"| {name} | {error} |")
            continue
        gaps = [
            np.max(np.abs(place - positions), axis=1),
            rod_errors(angles, place, rotation),
            np.max(np.abs(np.mod(angles - exact + np.pi, 2.0 * np.pi) - np.pi), axis=1),
        ]
        ends = " | ".join(f"{np.median(gap):.0e}, {np.max(gap):.0e}" for gap in gaps)
        print(f"| {name} | {setup:.1f} | {1e6 * spent / count:.0f} | {np.mean(iterations):.1f} | {ends} |")


if __name__ == "__main__":
    main()
