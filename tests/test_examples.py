"""Every public name has an example, and what the examples print stands behind it; builds of the site run all
of them.
"""

import importlib
import pathlib
import sys

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))
try:
    examples = importlib.import_module("site_examples")
finally:
    sys.path.remove(str(DOCS))


def test_every_public_name_has_an_example():
    shown, public = examples.shown(), examples.public()
    assert not set(public) - set(shown)
    # Nothing is shown that is not there, such as a name that was renamed.
    known = {*public, *examples.MODULES}
    for name, (page, heading) in shown.items():
        if name.startswith("jaxdae."):
            assert any(name == full or name.startswith(full + ".") for full in known), (
                f"{page.name}, {heading}: {name}"
            )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning")  # brax imports it
@pytest.mark.parametrize(
    "name",
    [
        # Each build of the site runs these pages, too.
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in examples.QUICK),
        *examples.ELSEWHERE,
    ],
)
def test_examples_print_what_they_say(name):
    if name in examples.ELSEWHERE:
        pytest.importorskip(
            examples.ELSEWHERE[name], reason="not installed: make test-envs and make test-viewer install it"
        )
    assert not examples.mistakes(DOCS / "examples" / f"{name}.md")


@pytest.mark.long
def test_the_guide_to_the_viewer_runs():
    pytest.importorskip("viser", reason="not installed: make test-viewer installs it")
    assert not examples.mistakes(DOCS / "viewer.md")


@pytest.mark.long
@pytest.mark.parametrize("name", ["how_do_i", "kinematics", "linear_models"])
def test_pages_print_the_output_in_their_comments(name):
    assert not examples.mistakes(DOCS / f"{name}.md")


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "solving_with_constraints",
        "simulation_with_constraints",
        "differential_algebraic_systems",
        "pendulum_with_motors",
        "hard_constraints",
    ],
)
def test_lectures_print_what_they_say(name):
    assert not examples.mistakes(DOCS / "lectures" / f"{name}.md")
