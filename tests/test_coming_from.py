"""The programs of docs/coming_from.md run and find what the page says; `make test-peers` installs the engines
that are no requirement.
"""

import importlib.util
import pathlib
import re

import numpy as np
import pytest

PAGE = (pathlib.Path(__file__).resolve().parents[1] / "docs" / "coming_from.md").read_text()
SECTIONS = {part.split("\n")[0]: part for part in re.split(r"^#{2,3} ", PAGE, flags=re.MULTILINE)}
MODULES = {
    "jaxdae": "jaxdae",
    "MuJoCo": "mujoco",
    "Pinocchio": "pinocchio",
    "Exudyn": "exudyn",
    "Drake": "pydrake",
}
REFERENCE = -2.1812300736  # rad, the crank's turn in the first second


def program(title):
    return re.search(r"```python\n(.*?)```", SECTIONS[title], re.DOTALL).group(1)


def ready(name):
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"{MODULES[name]} is not installed: make test-peers")


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # what other engines warn of is their own
@pytest.mark.parametrize("name", MODULES)
def test_the_four_bar_turns_as_the_page_says(name):
    ready(name)
    names = {}
    exec(program("The four-bar"), names)
    exec(program(name), names)
    row = re.search(rf"^\| {name} \| (\S+) \| (\S+) \|", SECTIONS["Results of the four-bar"], re.MULTILINE)
    said_off, said_opening = map(float, row.groups())
    # Two digits are printed; round-off differs from machine to machine.
    assert abs(names["turned"] - REFERENCE) == pytest.approx(said_off, rel=0.06, abs=2e-11)
    assert float(names["opening"]) == pytest.approx(said_opening, rel=0.06, abs=5e-15)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", [name for name in MODULES if name != "Exudyn"])
def test_the_arm_accelerates_as_the_page_says(name):
    ready(name)
    names = {}
    exec(program(f"{name}: the arm"), names)
    said = [float(x) for x in re.search(r"`\[(\S+) (\S+)\]`", SECTIONS["The arm"]).groups()]
    # MuJoCo's file has the inertia to twelve digits, and eight are printed.
    np.testing.assert_allclose(names["a"], said, rtol=0, atol=6e-9)
