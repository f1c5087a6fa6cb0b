"""The code of README.md and of the docs runs from the top of each page, as a reader copies it into one file;
and does what it says.
"""

import ast
import builtins
import functools
import math
import pathlib
import re

import numpy as np
import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

import jaxdae as jd

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
# Each page is a file of its own: nothing is defined but by its blocks.
PAGES = ("first_steps", "control", "learning", "optimal_control", "coordinates")
# The site's own pages are made from these.
LINKED = [
    *sorted(ROOT.glob("*.md")),
    *sorted(
        page
        for folder in ("configs", "docs", "experiments")
        for page in (ROOT / folder).rglob("*.md")
        if "generated" not in page.parts
    ),
]
# Nothing here looks whether they answer: who adds one does.
OUTER = {
    "https://docs.kidger.site/diffrax/",
    "https://github.com/google-deepmind/mujoco_menagerie",
    "https://github.com/jaxdae/jaxdae/issues",
    "https://github.com/jaxdae/jaxdae/security/advisories/new",
    "https://keepachangelog.com/en/1.1.0/",
    "https://semver.org/spec/v2.0.0.html",
}


def parsed(page):
    return list(Sybil([PythonCodeBlockParser()]).parse(page))


BLOCKS = {name: parsed(ROOT / "docs" / f"{name}.md") for name in PAGES}


@functools.cache
def after(page, block):
    """Returns the names that are defined when a block of a page has run, and before it all blocks above it on
    the page.
    """
    found = BLOCKS[page][block]
    found.namespace.clear()
    found.namespace.update(after(page, block - 1) if block > 0 else {"__name__": "__main__"})
    found.evaluate()
    return dict(found.namespace)


# Other blocks take long; their first ones stand for them.
QUICK = [("first_steps", 0), ("coordinates", 0)]


@pytest.mark.parametrize(
    ("page", "block"),
    [
        pytest.param(page, k, id=f"{page}_{k}", marks=[] if (page, k) in QUICK else pytest.mark.long)
        for page in PAGES
        for k in range(len(BLOCKS[page]))
    ],
)
def test_block(page, block):
    after(page, block)


def defined(tree):
    """Returns the names that a block defines, in whatever scope."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def undefined(blocks):
    """Returns the names that blocks read and no block above them defines."""
    known, missing = set(dir(builtins)), set()
    for block in blocks:
        tree = ast.parse(block)
        known |= defined(tree)
        missing |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known
    return missing


def test_every_name_on_a_page_is_defined_above():
    assert undefined(["import a.b\nx = a.b", "def f(y):\n    return x + y + z\n", "z = 1"]) == {"z"}
    pages = [README, *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [page for page in pages if "generated" not in page.parts]
    missing = {page.name: undefined([block.parsed for block in parsed(page)]) for page in pages}
    assert {name: names for name, names in missing.items() if names} == {}
    assert len(missing) > 25


def test_every_block_is_python_and_imports_what_there_is():
    for block in [block for page in PAGES for block in BLOCKS[page]] + parsed(README):
        tree = ast.parse(block.parsed)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), f"{block.path}, line {block.line}", "exec"), {})


def test_no_block_is_left_out():
    counts = {name: (ROOT / "docs" / f"{name}.md").read_text().count("```python") for name in PAGES}
    assert {name: len(blocks) for name, blocks in BLOCKS.items()} == counts
    assert sum(counts.values()) == 12


def test_readme_is_short():
    assert README.stat().st_size <= 6000


@pytest.mark.long
def test_the_gradient_of_readme_is_right():
    (block,) = parsed(README)
    block.evaluate()
    names = block.namespace
    both = names["jax"].value_and_grad(names["where_the_slider_is"])
    (value, slope), (higher, _), (lower, _) = (both(2.0 + shift) for shift in (0.0, 1e-4, -1e-4))
    # Central differences: h^2 = 1e-8 of a third derivative of some 1, and round-off of 1e-12.
    np.testing.assert_allclose(slope, (higher - lower) / 2e-4, rtol=1e-6)
    assert 1.0 < value < 3.0


@functools.cache
def prose(page):
    """Returns a page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def test_links_lead_somewhere():
    wrong, outer = [], set()
    for page in LINKED:
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            if target.startswith("http"):
                outer.add(target)
                continue
            path, _, heading = target.partition("#")
            to = page.parent / path if path else page
            if not to.exists():
                wrong.append(f"{page.name} links to {target}")
            elif heading:
                titles = re.findall(r"^#+ (.*)", prose(to), flags=re.MULTILINE)
                # As GitHub and MyST name them.
                if heading not in {
                    re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
                }:
                    wrong.append(f"{page.name} links to {target}, and there is no such heading")
    assert not wrong
    assert outer == OUTER


def test_a_system_of_your_own():
    names = after("first_steps", 0)
    # The bob hangs from the rod, so its place grows with the length and knows nothing of the mass.
    by = names["jax"].grad(names["height"])(names["pendulum"])
    np.testing.assert_allclose(by.mass, 0.0, rtol=0, atol=1e-9)
    assert abs(by.length) > 0.1


@pytest.mark.long
def test_a_thousand_worlds():
    many = after("first_steps", 1)["many"]
    assert many.state.q.shape == (1000, 10, 2)
    jd.raise_if_failed(many)
    # A pendulum swings the same whatever its mass.
    np.testing.assert_allclose(
        many.state.q, np.broadcast_to(many.state.q[:1], many.state.q.shape), rtol=0, atol=1e-9
    )


@pytest.mark.long
def test_a_ball_in_joint_coordinates_is_a_quaternion():
    names = after("first_steps", 5)
    assert names["top"].names.coordinates == ("socket.qw", "socket.qx", "socket.qy", "socket.qz")
    np.testing.assert_allclose(
        names["top"].frames(names["q"]).place.array()[:, 0], [0.3, 0.0, 0.0], rtol=0, atol=1e-15
    )


@pytest.mark.long
def test_the_pole_is_upright_again():
    np.testing.assert_allclose(
        after("control", 0)["trajectory"].state.q[-1, 5], math.pi / 2, rtol=0, atol=1e-2
    )


@pytest.mark.long
def test_the_hand_is_at_its_goal():
    names = after("control", 1)
    np.testing.assert_allclose(names["hand"](names["moved"].state.q[-1]), [0.6, 1.2], rtol=0, atol=1e-2)


@pytest.mark.long
def test_the_length_is_found():
    names = after("learning", 0)
    assert names["found"].loss < 1e-3


@pytest.mark.long
def test_the_pole_is_upright_by_model_predictive_control():
    names = after("optimal_control", 1)
    assert int(names["best"].status) == jd.Status.OK
    # From hanging, after 5 s.
    np.testing.assert_allclose(names["up"].state.q[-1, 5], math.pi / 2, rtol=0, atol=2e-2)
    assert int(names["up"].memory[1].failures) == 0
    assert names["found"].fun <= names["best"].cost + 1e-9
