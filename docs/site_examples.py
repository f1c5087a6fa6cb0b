"""Which block of code of which page shows a public name: the pages whose blocks the tests run, read as a person reads them.

A name is shown where code uses it, `jm.Revolute(...)` after `from jaxdae import mechanisms as jm`. Classes
that one gets and never makes stand in an annotation, `info: jaxdae.interfaces.InitializeInfo`; the value must
have that type, and every line must print what stands behind it.
"""

import ast
import contextlib
import importlib
import inspect
import io
import pathlib
import re
import shutil
import tempfile
import tokenize

DOCS = pathlib.Path(__file__).resolve().parent
EXAMPLES = sorted((DOCS / "examples").glob("*.md"))
"""One session each; run by every build of the site, those of `QUICK` by the tests."""
QUICK = ("plane", "robots", "scenes")
"""Pages that compile little."""
ELSEWHERE = {"cassie": "brax", "elsewhere": "brax", "live": "viser"}
"""Pages that are not run by builds, by what is installed where they are: `make test-envs`, `make test-viewer`. `cassie` takes minutes."""
OTHERS = [
    [DOCS / f"{name}.md" for name in ("first_steps", "control", "learning", "optimal_control")],
    [DOCS / "five_minutes.md"],
    [DOCS / "how_do_i.md"],
    [DOCS / "kinematics.md"],
    [DOCS / "linear_models.md"],
]
"""Sessions that `tests/test_docs.py` and `tests/test_site.py` run."""
MODULES = (
    "jaxdae",
    *(
        f"jaxdae.{name}"
        for name in (
            "app",
            "control",
            "envs",
            "kinematics",
            "mechanisms",
            "mechanisms.spatial",
            "models",
            "optimal_control",
            "robots",
            "rotation",
        )
    ),
    *(f"jaxdae.{name}" for name in ("tuning", "vehicles", "viewer")),
    *(
        f"jaxdae.{name}"
        for name in ("contact", "diffrax", "interfaces", "operators", "switching", "textbook", "tree")
    ),
)


def module(full):
    """Returns a public module by the name under which one imports it."""
    return importlib.import_module("jaxdae.geometry.rotation" if full == "jaxdae.rotation" else full)


def exported(full):
    """Returns the names that a public module exports, but not modules in it."""
    own = module(full)
    names = getattr(own, "__all__", None) or [
        n
        for n, x in vars(own).items()
        if (hasattr(x, "__wrapped__") or inspect.isfunction(x))  # a compiled function wraps its source
        and getattr(x, "__module__", "") == own.__name__
        and not n.startswith("_")
    ]
    return [name for name in names if not inspect.ismodule(getattr(own, name))]


def public():
    """Returns the full names of everything public."""
    return [f"{full}.{name}" for full in MODULES for name in exported(full)]


def blocks(page):
    """Returns (heading, code) of every block of Python on a page, from top to bottom."""
    found, heading, code = [], "", None
    for line in page.read_text().splitlines():
        if code is not None and line.startswith("```"):
            found.append((heading, "\n".join(code)))
            code = None
        elif code is not None:
            code.append(line)
        elif line.startswith("```python"):
            code = []
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def mistakes(page):
    """Runs a page in an empty folder; returns what it prints that does not stand there."""
    wrong, expected, where, namespace = [], {}, "", {}

    def compare(*values):
        line = inspect.currentframe().f_back.f_lineno
        found, said = told(" ".join(map(str, values))), told(expected[line])
        if found != said:
            wrong.append(f"{page.name}, {where}, line {line}: prints {found}, says {said}")

    namespace["print"] = compare
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copy(DOCS.parent / "tests" / "reference" / "models" / "cassie.xml", folder)
        for where, code in blocks(page):
            tree = ast.parse(code)
            expected = promised(code, tree)
            exec(compile(tree, f"{page.name}: {where}", "exec"), namespace)
            for node in tree.body:
                if isinstance(node, ast.AnnAssign):
                    value, kind = namespace[node.target.id], eval(ast.unparse(node.annotation), namespace)
                    if not getattr(kind, "_is_protocol", False) and not isinstance(value, kind):
                        wrong.append(f"{page.name}, {where}: {node.target.id} is a {type(value).__name__}")
    return wrong


def promised(code, tree):
    """Returns what is to be printed, by the line in which a call of print begins: the comment behind it."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    behind = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    return {node.lineno: behind.get(node.end_lineno, "(nothing)") for node in calls}


def told(text):
    """Returns a text without the spaces by which arrays are laid out, and without the sign of zero."""
    return re.sub(r"-(0\.?0*)(?![\d.e])", r"\1", " ".join(text.split()).replace("[ ", "[").replace(" ]", "]"))


def anchor(heading):
    """Returns the name of a heading in an address of the site, as docutils makes it."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def used(tree, aliases):
    """Yields the full names that a block uses; adds what it imports to the names of the session."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases.update(
                {
                    a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0]
                    for a in node.names
                }
            )
        elif isinstance(node, ast.ImportFrom):
            aliases.update(
                {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            first, *rest = ast.unparse(node).split(".")
            if first in aliases:
                yield ".".join([aliases[first], *rest])


def shown():
    """Returns {full name: (page, heading)} of the first place that shows each name.

    Pages of examples come first.
    """
    found = {}
    for session in [*([page] for page in EXAMPLES), *OTHERS]:
        aliases = {}
        for page in session:
            for heading, code in blocks(page):
                for name in used(ast.parse(code), aliases):
                    found.setdefault(name, (page, heading))
    return found
