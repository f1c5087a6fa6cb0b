"""The peers of `work_precision.py`: SUNDIALS IDA (scikit-sundae), Exudyn and MuJoCo on the same problems.

Each function returns contenders: a name, and one point a setting, `Point(setting, run)`, where `run()` does a
whole simulation from the start and returns its end coordinates as `Problem.error` takes them. What a setting
does once (models, compilation) is not in `run`.

IDA solves the equations in turns (see `work_precision_problems.py`), in two forms: of index 2 as stabilized
by Gear, Gupta and Leimkuhler (M (q' - v) = J^T mu, M v' = f + J^T lam, g = 0, J v = 0), and of index 1 (q' =
v, M v' = f + J^T lam, J v' + gamma = 0), which drifts. Residuals are written in NumPy as its users would,
with IDA's own difference quotients for the Jacobian; and, because Python is most of that time, once more with
a residual and an exact Jacobian compiled by JAX. Multipliers are left out of the error test by a large
absolute tolerance.

Exudyn has its own rigid bodies, revolute joints and spring-dampers in the plane; generalized-alpha with
constraints on positions (its default) and the trapezoidal rule with constraints on velocities, Newton's
tolerance tightened from 1e-8 to 1e-11. It runs in a process of its own, which adds 0.1 ms to a run.

MuJoCo has the tree of hinges, and `connect` where a hinge closes a loop, with RK4 and the stiffest
constraints that it takes (time constant of two steps, impedance 0.9999). Its pendulum comes twice: on a
hinge, where there is no constraint, and as a point mass on a tendon of constant length.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from work_precision_problems import GRAVITY, Problem, start_rates

TOLERANCES = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13)
EVALUATIONS = 50_000  # of IDA's residual, after which a run has failed


@dataclasses.dataclass
class Point:
    """One setting of a contender: `run()` simulates, and `read` converts its result for `Problem.error`."""

    setting: str
    run: Callable
    read: Callable = lambda end: end


# IDA.


def numpy_terms(problem: Problem) -> tuple[Callable, np.ndarray, np.ndarray]:
    """Return ((q, v) -> (M, f, J, gamma, g), q0, v0), in NumPy."""
    if problem.linkage is None:
        mass, weight = np.eye(2), np.array([0.0, -GRAVITY])

        def pendulum(q, v):
            return mass, weight, q[None, :], np.array([v @ v]), np.array([0.5 * (q @ q - 1.0)])

        return pendulum, np.array([-1.0, 0.0]), np.zeros(2)
    numbers, spring = problem.linkage.numbers(), problem.linkage.spring
    A, weight, loops, closed, torque = (
        numbers[name] for name in ("A", "weight", "loops", "closed", "torque")
    )
    split = loops.shape[0]

    def both(x):
        out = np.empty((2 * split, *x.shape[1:]))
        out[:split], out[split:] = x.real, x.imag
        return out

    def terms(q, v):
        e = np.exp(1j * q)
        turned = A * (e.conj()[:, None] * e)
        turning = loops * e
        f = turned.imag @ (v * v) - (weight * e).real + torque
        if spring is not None:
            arm = numbers["spring"] * e
            along = numbers["spring_from"] + arm.sum()
            length = abs(along)
            f = f + ((1j * arm).conj() * (-spring.stiffness * (length - spring.rest) / length * along)).real
        return (
            turned.real,
            f,
            both(1j * turning),
            both(-(turning @ (v * v))),
            both(turning.sum(axis=1) - closed),
        )

    n = A.shape[0]
    return terms, np.zeros(n), start_rates(problem)


def ida(problem: Problem, quick: bool) -> dict[str, list[Point]]:
    """Return IDA's contenders: both forms, residuals in NumPy and compiled by JAX."""
    import jax
    import jax.numpy as jnp
    from sksundae.ida import IDA

    terms, q0, v0 = numpy_terms(problem)
    n = q0.size
    mass, f, pull, gamma, _ = terms(q0, v0)
    k = pull.shape[0]
    accelerations = np.linalg.lstsq(
        np.block([[mass, -pull.T], [pull, np.zeros((k, k))]]), np.concatenate([f, -gamma]), rcond=None
    )[0]
    a0, lam0 = accelerations[:n], accelerations[n:]
    system = next(iter(problem.forms().values()))[0]

    def stabilized(t, y, yp, res):
        v = y[n : 2 * n]
        mass, f, pull, _, g = terms(y[:n], v)
        res[:n] = mass @ (yp[:n] - v) - y[2 * n + k :] @ pull
        res[n : 2 * n] = mass @ yp[n : 2 * n] - f - y[2 * n : 2 * n + k] @ pull
        res[2 * n : 2 * n + k] = pull @ v
        res[2 * n + k :] = g

    def index_1(t, y, yp, res):
        v = y[n : 2 * n]
        mass, f, pull, gamma, _ = terms(y[:n], v)
        res[:n] = yp[:n] - v
        res[n : 2 * n] = mass @ yp[n : 2 * n] - f - y[2 * n :] @ pull
        res[2 * n :] = pull @ yp[n : 2 * n] + gamma

    def compiled_stabilized(y, yp):
        q, v, lam, mu = y[:n], y[n : 2 * n], y[2 * n : 2 * n + k], y[2 * n + k :]
        pull, mass = system.constraint_jacobian(0.0, q, v), system.mass_matrix(q)
        first = mass @ (yp[:n] - v) - mu @ pull
        second = mass @ yp[n : 2 * n] - system.force(0.0, q, v, None) - lam @ pull
        return jnp.concatenate([first, second, pull @ v, system.constraint(0.0, q)])

    def compiled_index_1(y, yp):
        q, v, a = y[:n], y[n : 2 * n], yp[n : 2 * n]
        pull, mass = system.constraint_jacobian(0.0, q, v), system.mass_matrix(q)
        second = mass @ a - system.force(0.0, q, v, None) - y[2 * n :] @ pull
        return jnp.concatenate([yp[:n] - v, second, pull @ a + system.constraint_bias(0.0, q, v)])

    count = [0]

    def limited(function):
        # At singular configurations steps may become so short that a run would not end.
        def resfn(t, y, yp, res):
            count[0] += 1
            if count[0] > EVALUATIONS:
                res[:] = np.nan
            else:
                function(t, y, yp, res)

        return resfn

    def callbacks(function, y0, yp0):
        residual = jax.jit(function)
        jacobian = jax.jit(
            lambda y, yp, cj: jax.jacfwd(function)(y, yp) + cj * jax.jacfwd(function, 1)(y, yp)
        )
        jax.block_until_ready((residual(y0, yp0), jacobian(y0, yp0, 1.0)))  # compiles

        @limited
        def resfn(t, y, yp, res):
            res[:] = residual(y, yp)

        def jacfn(t, y, yp, res, cj, JJ):
            JJ[:, :] = jacobian(y, yp, float(cj))

        return {"resfn": resfn, "jacfn": jacfn}

    found = {}
    forms = {"index 2": (stabilized, compiled_stabilized, 2 * k), "index 1": (index_1, compiled_index_1, k)}
    for form, (plain, function, rows) in forms.items():
        y0 = np.concatenate([q0, v0, lam0, np.zeros(rows - k)])
        yp0 = np.concatenate([v0, a0, np.zeros(rows)])
        for name, given in {
            "NumPy": {"resfn": limited(plain)},
            "compiled": callbacks(function, y0, yp0),
        }.items():
            points = []
            for tolerance in TOLERANCES[:: 3 if quick else 1]:
                loose = 1e6 * (1.0 + np.abs(lam0).max())
                absolute = np.concatenate([np.full(2 * n, tolerance), np.full(rows, loose)])
                options = {
                    "algebraic_idx": np.arange(2 * n, 2 * n + rows),
                    "rtol": tolerance,
                    "atol": absolute,
                    "max_num_steps": 20_000,
                }
                solver = IDA(**given, **options)

                def run(solver=solver, y0=y0, yp0=yp0):
                    count[0] = 0
                    solution = solver.solve(np.array([0.0, problem.end]), y0, yp0)
                    return solution.y[-1, :n] if solution.success else np.full(n, np.nan)

                points.append(Point(f"tolerance {tolerance:g}", run))
            found[f"IDA {form}, {name} residual"] = points
    return found


# Exudyn.


class ExudynWorker:
    """A process with one model in Exudyn (see `exudyn_worker.py`), started anew where it has died."""

    def __init__(self, model: dict):
        self.model, self.process = model, None
        self.start()

    def start(self) -> None:
        """Start the process and wait until the model is assembled."""
        script = Path(__file__).with_name("exudyn_worker.py")
        command = [sys.executable, str(script)]
        # Killed with this process, because it then reads the end of its input.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        if self.ask(self.model) != {"ready": True}:
            raise RuntimeError("Exudyn does not start")

    def ask(self, message: dict) -> dict:
        """Return the answer, or that there is none."""
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"failed": "the process has ended"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"failed": f"the process ended with {self.process.wait()}"}

    def coordinates(self, solver: str, steps: int) -> np.ndarray | None:
        """Return the end coordinates of a run, or None where it failed."""
        answer = self.ask({"solver": solver, "steps": steps})
        if self.process.poll() is not None:
            self.start()
        return np.array(answer["coordinates"]) if "coordinates" in answer else None


def exudyn_model(problem: Problem) -> dict:
    """Return the model as `exudyn_worker.py` reads it."""
    linkage = problem.linkage
    if linkage is None:
        return {"end": problem.end, "gravity": GRAVITY, "bodies": [], "hinges": [], "spring": None}

    def plane(x: complex) -> list[float]:
        return [float(x.real), float(x.imag)]

    rates = start_rates(problem)
    torques = [*linkage.torque, *[0.0] * len(linkage.bodies)]
    bodies = [
        {
            "name": body.name,
            "mass": float(body.mass),
            "inertia": float(body.inertia),
            "center": plane(body.center),
            "speed": plane(1j * linkage.arms(body.name, body.center) @ rates),
            "rate": float(rate),
            "torque": float(torque),
        }
        for body, rate, torque in zip(linkage.bodies, rates, torques, strict=False)
    ]
    hinges = [[a, b, plane(point)] for a, b, point in linkage.hinges]
    spring = linkage.spring and dataclasses.asdict(linkage.spring)
    if spring:
        spring |= {"anchor": plane(spring["anchor"]), "point": plane(spring["point"])}
    return {
        "end": problem.end,
        "gravity": linkage.gravity,
        "bodies": bodies,
        "hinges": hinges,
        "spring": spring,
    }


def exudyn(problem: Problem, quick: bool) -> dict[str, list[Point]]:
    """Return Exudyn's contenders."""
    worker = ExudynWorker(exudyn_model(problem))

    def run(solver, steps):
        return worker.coordinates(solver, steps)

    def read(end):
        if end is None:
            return np.full(2 if problem.linkage is None else len(problem.linkage.bodies), np.nan)
        return end + np.array([-1.0, 0.0]) if problem.linkage is None else end[2::3]

    counts = [problem.steps * 2**power for power in range(0, 8, 3 if quick else 1)]
    kinds = {
        "Exudyn generalized-alpha": "GeneralizedAlpha",
        "Exudyn trapezoidal, index 2": "TrapezoidalIndex2",
    }
    return {
        name: [Point(f"{n} steps", partial(run, kind, n), read) for n in counts]
        for name, kind in kinds.items()
    }


# MuJoCo.


def mujoco_xml(problem: Problem, dt: float, tendon: bool) -> str:
    """Return the model; the frames of all bodies lie along x and y at the start."""
    stiff = f'solref="{2 * dt!r} 1" solimp="0.9999 0.9999 0.001"'
    option = (
        f'<option timestep="{dt!r}" gravity="0 '
        f'{-(problem.linkage.gravity if problem.linkage else GRAVITY)} 0" integrator="RK4"'
    )
    option += ' tolerance="1e-14"/>'
    if problem.linkage is None:
        inertia = 'mass="1" diaginertia="1e-13 1e-13 1e-13"'
        if not tendon:
            # The compound pendulum of the same motion: MuJoCo has no bodies without inertia.
            world = (
                '<body><joint name="bob" axis="0 0 1"/><inertial pos="-0.5 0 0" mass="1" '
                'diaginertia="0.125 0.25 0.25"/></body>'
            )
            return f"<mujoco>{option}<worldbody>{world}</worldbody></mujoco>"
        slides = '<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>'
        world = (
            f'<site name="pin"/><body pos="-1 0 0">{slides}<inertial pos="0 0 0" {inertia}/><site '
            'name="bob"/></body>'
        )
        rod = '<tendon><spatial name="rod"><site site="pin"/><site site="bob"/></spatial></tendon>'
        return (
            f'<mujoco>{option}<worldbody>{world}</worldbody>{rod}<equality><tendon tendon1="rod" '
            f"{stiff}/></equality></mujoco>"
        )
    parents, loops = problem.linkage.tree()
    sites: dict[str, str] = {}

    def site(name, body, point):
        place = point - parents[body][1] if body != "ground" else point
        sites[body] = sites.get(body, "") + f'<site name="{name}" pos="{place.real!r} {place.imag!r} 0"/>'

    for k, (a, b, point) in enumerate(loops):
        site(f"a{k}", a, point)
        site(f"b{k}", b, point)
    spring = problem.linkage.spring
    tendons = ""
    if spring:
        site("anchor", "ground", spring.anchor)
        site("pulled", spring.body, spring.point)
        tendons = f'<tendon><spatial stiffness="{spring.stiffness}" springlength="{spring.rest}">'
        tendons += '<site site="anchor"/><site site="pulled"/></spatial></tendon>'

    def tree(name):
        inside = sites.get(name, "")
        for body in problem.linkage.bodies:
            parent, hinge = parents[body.name]
            if parent != name:
                continue
            place = hinge - (parents[name][1] if name != "ground" else 0)
            center, inertia = (
                body.center - hinge,
                f"{body.inertia / 2!r} {body.inertia!r} {body.inertia!r}",
            )  # a thin rod
            inside += f'<body name="{body.name}" pos="{place.real!r} {place.imag!r} 0"><joint name="{body.name}" axis="0 0 1"/>'
            inside += f'<inertial pos="{center.real!r} {center.imag!r} 0" mass="{body.mass!r}" diaginertia="{inertia}"/>'
            inside += tree(body.name) + "</body>"
        return inside

    equality = "".join(f'<connect site1="a{k}" site2="b{k}" {stiff}/>' for k in range(len(loops)))
    return f"<mujoco>{option}<worldbody>{tree('ground')}</worldbody>{tendons}<equality>{equality}</equality></mujoco>"


def mujoco(problem: Problem, quick: bool) -> dict[str, list[Point]]:
    """Return MuJoCo's contenders."""
    import mujoco as mj

    names = (
        {"MuJoCo RK4, hinge": False, "MuJoCo RK4, stiff tendon": True}
        if problem.linkage is None
        else {"MuJoCo RK4, stiff": False}
    )
    found = {}
    for name, tendon in names.items():
        points = []
        for power in range(0, 11, 3 if quick else 1):
            count = problem.steps * 2**power // 2
            model = mj.MjModel.from_xml_string(mujoco_xml(problem, problem.end / count, tendon))
            data = mj.MjData(model)

            def run(model=model, data=data, count=count, tendon=tendon):
                mj.mj_resetData(model, data)
                if problem.linkage is None:
                    mj.mj_step(model, data, nstep=count)
                    turn = data.qpos[0]
                    return (
                        data.qpos + np.array([-1.0, 0.0])
                        if tendon
                        else -np.array([np.cos(turn), np.sin(turn)])
                    )
                addresses = [model.joint(body.name).qposadr[0] for body in problem.linkage.bodies]
                names = [body.name for body in problem.linkage.bodies]
                parents, _ = problem.linkage.tree()
                rates = dict(zip(names, start_rates(problem), strict=True)) | {"ground": 0.0}
                data.qvel[addresses] = [rates[name] - rates[parents[name][0]] for name in names]
                data.qfrc_applied[addresses[: len(problem.linkage.torque)]] = problem.linkage.torque
                mj.mj_step(model, data, nstep=count)
                turns = {"ground": 0.0}
                for name, address in zip(names, addresses, strict=True):
                    turns[name] = data.qpos[address]
                return total(names, parents, turns)

            points.append(Point(f"{count} steps", run))
        found[name] = points
    return found


def total(names: list[str], parents: dict, turns: dict) -> np.ndarray:
    """Return the turns of the bodies from those of their hinges."""

    def of(name):
        return 0.0 if name == "ground" else turns[name] + of(parents[name][0])

    return np.array([of(name) for name in names])


PEERS = {"IDA": ("sksundae", ida), "Exudyn": ("exudyn", exudyn), "MuJoCo": ("mujoco", mujoco)}
