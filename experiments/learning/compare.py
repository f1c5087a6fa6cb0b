"""The value of gradients through the simulation: APG, SHAC and PPO learn to reach with a five-bar.

    python experiments/learning/compare.py [--out DIR] [--seeds N] [--quick]

All three have the same networks (two layers of 64) and the same task, in single precision. The clock counts
training only: no compiling, no evaluation. Both times are given, of the wall and of all cores together. Needs
matplotlib (extra `app`).
"""

import argparse
import csv
import pathlib
import time
from typing import Any, NamedTuple

import apg
import jax
import numpy as np
import ppo
import shac
from networks import judged

from jaxdae.app import line_style, styled
from jaxdae.envs import Environment, five_bar_reach

METHODS = {"APG": (apg.train, 400), "SHAC": (shac.train, 1200), "PPO": (ppo.train, 500)}


class Point(NamedTuple):
    """A line of the table."""

    method: str
    seed: int
    update: int
    steps: int
    wall_s: float
    cpu_s: float
    episode_return: float
    late_mm: float
    failed: int


class Clock:
    """Times training between evaluations; called after every update."""

    def __init__(self, method: str, seed: int, environment: Environment, every: int):
        """Start nothing yet: the first update compiles."""
        self.points: list[Point] = []
        self.compile_cpu_s = 0.0
        self._name, self._seed, self._environment, self._every = method, seed, environment, every
        self._wall = self._cpu = 0.0
        self._steps = 0
        self._judge: Any = None
        self._mark()

    def _mark(self) -> None:
        self._from = time.perf_counter(), time.process_time()

    def __call__(self, update: int, actor: Any, policy: Any, steps: int) -> None:
        """Take note of an update."""
        jax.block_until_ready(jax.tree.leaves(policy))
        wall, cpu = time.perf_counter() - self._from[0], time.process_time() - self._from[1]
        if update == 0:
            self.compile_cpu_s = cpu
        else:
            self._wall, self._cpu = self._wall + wall, self._cpu + cpu
        self._steps += steps
        if update % self._every == 0:
            score = judge(self._environment, self._name, policy)
            late = -100.0 * float(score.late_reward)  # rewards are in decimeters
            self.points.append(
                Point(
                    self._name,
                    self._seed,
                    update,
                    self._steps,
                    self._wall,
                    self._cpu,
                    float(score.episode_return),
                    late,
                    int(score.failed),
                )
            )
            print(self.points[-1], flush=True)
        self._mark()


_JUDGES: dict[str, Any] = {}


def judge(environment: Environment, method: str, policy: Any) -> Any:
    """Return the score of a policy on 256 episodes that are the same for all."""
    if method not in _JUDGES:

        def score(policy: Any) -> Any:
            actor = (
                (lambda x: apg.act(policy, x)) if method != "PPO" else (lambda x: ppo.apply(policy.mean, x))
            )
            return judged(environment, actor, jax.random.key(12345))

        _JUDGES[method] = jax.jit(score)
    return _JUDGES[method](policy)


def main() -> int:
    """Trains, writes the table and the figure and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/learning"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tenth of the updates")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    environment, points = Environment(five_bar_reach()), []
    for name in asked.methods:
        train, updates = METHODS[name]
        updates = updates // 10 if asked.quick else updates
        for seed in range(asked.seeds):
            clock = Clock(name, seed, environment, max(1, updates // 25))
            train(environment, jax.random.key(seed), updates, clock)
            points += clock.points
            print(f"{name}: {clock.compile_cpu_s:.1f} CPU s until the first update was done", flush=True)
    with (asked.out / "learning_curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Point._fields)
        writer.writerows(points)
    drawn(points, asked.out / "learning_curves.png")
    return 0


def drawn(points: list[Point], path: pathlib.Path) -> None:
    """Write the figure: return and distance over wall time and over CPU time.

    CPU time depends less on the machine load.
    """
    clocks = {"wall_s": "wall time of training in s", "cpu_s": "CPU time of training in s"}
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 7.5), layout="constrained")
        grid = figure.subplots(2, 2, sharex="col", sharey="row")
        for (clock, label), (upper, lower) in zip(clocks.items(), grid.T, strict=True):
            for k, name in enumerate(dict.fromkeys(point.method for point in points)):
                for seed in sorted({point.seed for point in points}):
                    own = [point for point in points if point.method == name and point.seed == seed]
                    times = np.array([getattr(point, clock) for point in own])
                    upper.plot(
                        times,
                        [-point.episode_return for point in own],
                        label=name if seed == 0 else None,
                        **line_style(k),
                    )
                    lower.plot(times, [point.late_mm for point in own], **line_style(k))
            lower.set(xlabel=label)
        (left, right), (below, _) = grid
        left.set(ylabel="minus the return of an episode", yscale="log", title="five-bar reach, 256 episodes")
        below.set(ylabel="cost in mm", yscale="log", title="distance left and effort, second half")
        right.legend()
        figure.savefig(path)


if __name__ == "__main__":
    raise SystemExit(main())
