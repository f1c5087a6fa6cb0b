"""Status codes, and the exception that they become on the host."""

import dataclasses
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from all_cases import all_cases

import jaxdae as jd
from jaxdae import Status


@dataclasses.dataclass
class Report:
    status: Any


@dataclasses.dataclass
class Run:
    info: Any


@all_cases("status", list(Status))
def test_every_code_says_what_it_means(status):
    assert len(status.meaning) > 10
    if status is not Status.OK:
        assert "usual causes" in status.meaning


def test_codes_are_distinct_and_ok_is_zero():
    assert Status.OK == 0
    assert len({int(s) for s in Status}) == len(Status)


@all_cases("shape", [(), (3,), (2, 3), (0,), (2, 0), (1, 1)])
def test_nothing_happens_where_all_is_well(shape):
    jd.raise_if_failed(Report(jnp.zeros(shape, jnp.int32)))
    jd.raise_if_failed(Run(Report(np.zeros(shape, np.int32))))


def message(status):
    with pytest.raises(jd.SimulationError) as caught:
        jd.raise_if_failed(Run(Report(jnp.asarray(status, jnp.int32))))
    return str(caught.value)


def test_single_step():
    assert message(Status.SINGULAR) == f"SINGULAR: {Status.SINGULAR.meaning}"


def test_first_entry_of_one_world():
    assert message([0, 0, 2, 2]).startswith("NOT_CONVERGED at entry 2: ")


def test_earliest_entry_of_all_worlds_comes_first():
    status = np.zeros((4, 5), int)
    status[1, 4:] = Status.SINGULAR
    status[2, 1:] = Status.NONFINITE
    status[3, 2:] = Status.NOT_CONVERGED
    assert message(status).startswith(
        "NONFINITE at entry 1 of world 2; 3 of 4 worlds failed: the step produced NaN"
    )


def test_only_the_last_entry_of_the_last_world():
    status = np.zeros((2, 3), int)
    status[1, 2] = Status.INCONSISTENT_START
    assert message(status).startswith(
        "INCONSISTENT_START at entry 2 of world 1; 1 of 2 worlds failed: the start state violates the constraints; "
        "usual causes: a guess that"
        " initialize(system, q) has not closed yet"
    )


def test_an_object_without_status():
    with pytest.raises(TypeError, match="expected a StepInfo or Trajectory, got tuple"):
        jd.raise_if_failed((1, 2))


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_inside_a_transformation(transform):
    def function(status):
        jd.raise_if_failed(Report(status))
        return status

    with pytest.raises(TypeError, match="call it outside jit"):
        transform(function)(jnp.zeros(2, jnp.int32))


def test_the_docs_say_of_every_code_what_to_do():
    """The table has a row for each: number, status, cause, remedy. The page of questions has each of them in
    a question.
    """
    docs = pathlib.Path(__file__).parent.parent / "docs"
    rows = [line for line in (docs / "statuses.md").read_text().splitlines() if "| `" in line]
    questions = re.findall(r"^\*\*(.*?)\*\*", (docs / "faq.md").read_text(), re.MULTILINE)
    for status in Status:
        (row,) = (line for line in rows if line.startswith(f"| {status.value} | `{status.name}` |"))
        if status is not Status.OK:
            assert all(len(cell.strip()) > 10 for cell in row.split("|")[3:5])
            assert any(f"`{status.name}`" in question for question in questions), status.name
