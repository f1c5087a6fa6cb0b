"""The pages that the site makes from the code hold everything that there is, and once. `make docs` builds it,
with warnings as errors.
"""

import importlib
import importlib.util
import pathlib
import re
import sys
import types

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXPERIMENTS = sorted(path.stem for path in (ROOT / "experiments").glob("*.py"))


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(DOCS))
    try:
        yield importlib.import_module("site_pages")
    finally:
        sys.path.remove(str(DOCS))


def test_every_experiment_is_described_and_has_a_picture(pages):
    assert sorted(pages.described()) == EXPERIMENTS
    pictures = {path.stem for path in (DOCS / "pictures" / "experiments").glob("*.webp")}
    assert pictures == set(EXPERIMENTS)
    shown = re.findall(r"^:img-top: .*/(\w+)\.webp$", pages.gallery(DOCS), re.MULTILINE)
    assert shown == [name for name in pages.described() if name in pictures]


def test_contents_hold_every_page_once(pages, tmp_path):
    for name in ("first_steps", "coming_from", "stray", "generated/tables", "lectures/lyapunov", "index"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.md").write_text("# Page\n")
    lines = pages.contents(tmp_path).splitlines()
    found = [line for line in lines if line and line[0] not in "`:"]
    assert sorted(found) == ["coming_from", "first_steps", "generated/tables", "lectures/lyapunov", "stray"]
    assert found[-1] == "stray"


def test_links_become_pages_or_addresses(pages):
    text = (
        "[a](../configs/README.md#x) [b](../experiments/arc.py) [c](control.md#laws) [d](https://x.org/) "
        "[e](#here) [f](nowhere.md)"
    )
    assert pages.links(text, DOCS, DOCS) == (
        f"[a](generated/configs.md#x) [b]({pages.REPOSITORY}/blob/main/experiments/arc.py) "
        "[c](control.md#laws) [d](https://x.org/)"
        " [e](#here) [f](nowhere.md)"
    )
    assert pages.links("[a](docs/control.md)", ROOT, DOCS / "generated") == "[a](../control.md)"


def test_tables_have_a_row_for_everything_in_the_catalogue(pages):
    import catalogue

    text = pages.tables()
    for name in (*catalogue.METHODS, *catalogue.SOLVERS):
        assert f"\n| `{name}` |" in text
    # The text of a field is that of its class, its default as somebody would write it.
    assert "| `Baumgarte` | `alpha` | must be given | damping in 1/s; alpha = beta is critical. |" in text
    assert "| `PositionProjection` | `metric` | `Metric.MASS` | W, see `Metric`. |" in text
    assert "| `Projected` | `projection` | `Projection()` |" in text
    undescribed = re.findall(r"^\| `(\w+)` \| `(\w+)` \| [^|]* \|  \|$", text, re.MULTILINE)
    assert not undescribed


def test_the_api_holds_every_public_name_once_with_an_index(pages):
    found = pages.api()
    for full, text in found.items():
        module = (
            importlib.import_module(full)
            if full != "jaxdae.rotation"
            else importlib.import_module("jaxdae.geometry.rotation")
        )
        named = set(re.findall(rf"^\.\. auto\w+:: {re.escape(full)}\.(\w+)$", text, re.MULTILINE))
        public = {
            n
            for n in getattr(module, "__all__", named)
            if n not in ("__version__", "spatial") and not isinstance(getattr(module, n), types.ModuleType)
        }
        assert public - named <= {
            n for n in public if not callable(getattr(module, n)) and hasattr(getattr(module, n), "__path__")
        }
    assert {
        "jaxdae",
        "jaxdae.control",
        "jaxdae.mechanisms",
        "jaxdae.robots",
        "jaxdae.rotation",
        "jaxdae.tuning",
        "jaxdae.vehicles",
    } <= set(found)


def test_the_api_shows_no_internals(pages):
    import jaxdae
    from jaxdae import mechanisms as jm

    assert pages.user_members(jm.Absolute) == pages.user_members(jm.Revolute) == []
    assert pages.user_members(jaxdae.Trajectory) == ["to_xarray"]
    assert "rk4" in pages.user_members(jaxdae.RungeKutta)
    assert "OK" in pages.user_members(jaxdae.Status)
    assert {"mass_matrix", "constraint"} <= set(pages.user_members(jaxdae.interfaces.AnySystem))
    assert "   :members: to_xarray" in pages.api()["jaxdae"]


def test_docstrings_become_what_they_mean(pages):
    rst = importlib.import_module("site_docstrings").rst
    assert rst(["A list of `a", "b` and c."]) == ["A list of ``a b`` and c."]
    fields = [":param x: a.", "Text.", ":rtype: int"]
    importlib.import_module("site_docstrings").separate_fields(None, "", "", None, None, fields)
    assert fields == [":param x: a.", "", "Text.", "", ":rtype: int"]
    text = (
        "Size |x|_W of `a_b`.\n\n    E = m c^2 |v|\n\n- point\n\n    more of it\n\nArgs:\n    x: a "
        "`y`.\n\nReferences:\n    A. B, *C*.\n"
    )
    assert rst(text.splitlines()) == [
        "Size \\|x\\|_W of ``a_b``.",
        *("", "::", "", "    E = m c^2 |v|", "", "- point", "", "    more of it", ""),
        *("Args:", "    x: a ``y``.", "", "**References**", "", "A. B, \\*C\\*."),
    ]


@pytest.mark.long
def test_the_first_five_minutes_run(pages):
    (block,) = list(Sybil([PythonCodeBlockParser()]).parse(DOCS / "five_minutes.md"))
    block.evaluate()
    names = block.namespace
    assert names["jaxdae"].diagnose(names["press"], names["start"]).mobility == 1
    assert names["trajectory"].state.q.shape == (10, 6)
    assert float(names["trajectory"].info.violation.max()) < 1e-13
