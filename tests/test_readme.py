"""The code of README.md runs, block after block in one namespace, as somebody types it who reads along; and does what README says."""

import ast
import functools
import math
import pathlib

import numpy as np
import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import jaxdae as jd

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = list(Sybil([PythonCodeBlockParser()]).parse(README))


@functools.cache
def after(block):
    """Returns the names that are defined when the block has run, and before it all that stand above."""
    if block > 0:
        after(block - 1)
    BLOCKS[block].evaluate()
    return dict(BLOCKS[block].namespace)


# The last blocks control and tune: they are the dear ones, and run after all the others.
SHORT = 4


@pytest.mark.parametrize(
    "block", [pytest.param(k, id=f"line_{block.line}", marks=[] if k < SHORT else pytest.mark.long) for k, block in enumerate(BLOCKS)]
)
def test_block(block):
    after(block)


def test_every_block_is_python_and_imports_what_there_is():
    for block in BLOCKS:
        tree = ast.parse(block.parsed)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), f"{README.name}, line {block.line}", "exec"), {})


def test_no_block_is_left_out():
    assert len(BLOCKS) == README.read_text().count("```python") == 7


def test_a_system_of_your_own():
    names = after(0)
    # The bob hangs from the rod, so its place grows with the length and knows nothing of the mass.
    by = names["jax"].grad(names["height"])(names["pendulum"])
    np.testing.assert_allclose(by.mass, 0.0, atol=1e-9)
    assert abs(by.length) > 0.1


def test_a_thousand_worlds():
    many = after(1)["many"]
    assert many.state.q.shape == (1000, 10, 2)
    jd.raise_if_failed(many)
    # A pendulum swings the same whatever its mass.
    np.testing.assert_allclose(many.state.q, np.broadcast_to(many.state.q[:1], many.state.q.shape), atol=1e-9)


def test_a_ball_in_joint_coordinates_is_a_quaternion():
    names = after(3)
    assert names["top"].names.coordinates == ("socket.qw", "socket.qx", "socket.qy", "socket.qz")
    np.testing.assert_allclose(names["top"].frames(names["q"]).place.array()[:, 0], [0.3, 0.0, 0.0], atol=1e-15)


@pytest.mark.long
def test_the_pole_is_upright_again():
    np.testing.assert_allclose(after(4)["trajectory"].state.q[-1, 5], math.pi / 2, atol=1e-2)


@pytest.mark.long
def test_the_hand_is_at_its_goal():
    names = after(5)
    np.testing.assert_allclose(names["hand"](names["moved"].state.q[-1]), [0.6, 1.2], atol=1e-2)


@pytest.mark.long
def test_the_length_is_found():
    names = after(6)
    assert names["found"].loss < 1e-3
