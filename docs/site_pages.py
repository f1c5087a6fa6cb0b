"""The pages that are made from the code at every build: contents, tables of methods and solvers, statuses, gallery, API.

They go to `docs/generated/`, which git ignores. Nothing in them is written by hand. Methods and solvers come
from `tests/catalogue.py`, and the tests verify what the tables state about them. Fields come from the classes,
and statuses from the enumeration.
"""

import dataclasses
import enum
import functools
import inspect
import pathlib
import re
import shutil

import site_docstrings
import site_examples

import jaxdae

ROOT = pathlib.Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/jaxdae/jaxdae"
PAGES_OF_OTHERS = {
    "configs/README.md": "configs",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "experiments/benchmarks/RESULTS.md": "benchmark_peers",
    "experiments/benchmarks/WORK_PRECISION.md": "benchmark_work_precision",
    "experiments/benchmarks/LINEAR_SOLVERS.md": "benchmark_linear_solvers",
    "experiments/benchmarks/MANY_BODIES.md": "benchmark_many_bodies",
    "experiments/benchmarks/SINGLE_PRECISION.md": "benchmark_single_precision",
}
"""Pages elsewhere in the repository that the site shows too, and their names there."""

CONTENTS = {
    "Begin": ["five_minutes", "first_steps", "how_do_i", "equation", "glossary"],
    "Notebooks": [
        "notebooks/first_linkage",
        "notebooks/own_urdf",
        "notebooks/lengths_by_gradient",
        "notebooks/optimal_control",
        "notebooks/learning_on_a_loop",
        "notebooks/car",
    ],
    "Mechanisms": [
        "choosing_coordinates",
        "coordinates",
        "space",
        "robots",
        "kinematics",
        "vehicles",
        "terrain",
        "contact",
        "joint_limits",
    ],
    "Methods": ["methods", "generated/tables", "accuracy", "statuses", "faq"],
    "Control and learning": [
        "control",
        "linear_models",
        "learning",
        "checkpointing",
        "optimal_control*",
        "environments*",
    ],
    "Running": [
        "command",
        "configs_tutorial",
        "configs_reference",
        "generated/configs",
        "results*",
        "viewer*",
        "layout",
        "fused",
        "fused_configs",
        "many_machines",
        "tested",
    ],
    "Coming from elsewhere": ["coming_from"],
    "Experiments": ["generated/gallery", "experiments", "generated/benchmark_*"],
    "Lectures": ["lectures", "lectures/*"],
    "Reference": ["generated/api/*", "generated/changelog", "generated/contributing"],
    "Examples": [
        f"examples/{name}" for name in ("equation", "stepping", "plane", "space", "robots", "rolling")
    ]
    + ["examples/laws", "examples/fitting", "examples/planning", "examples/episodes", "examples/*"],
}
"""Parts of the site and their pages.

Names that match no page are no error, pages that no name matches come last.
"""

SHORTER = ("baumgarte_tuning", "energy_drift", "swing_up")
"""Experiments whose picture is of a run with fewer steps, starts or worlds than their config asks for."""


def write(docs):
    """Writes all generated pages into a folder of the site."""
    out = docs / "generated"
    shutil.rmtree(out, ignore_errors=True)
    (out / "api").mkdir(parents=True)
    for source, name in PAGES_OF_OTHERS.items():
        text = (ROOT / source).read_text()
        (out / f"{name}.md").write_text(links(text, (ROOT / source).parent, out))
    (out / "tables.md").write_text(tables())
    (out / "gallery.md").write_text(gallery(docs))
    for module, text in api().items():
        (out / "api" / f"{module}.md").write_text(text)
    (out / "contents.txt").write_text(contents(docs))


# Contents and links.


def contents(docs):
    """Returns the tables of contents: each page once, those that nobody listed at the end."""
    every = {
        path.relative_to(docs).with_suffix("").as_posix()
        for path in (*docs.rglob("*.md"), *docs.glob("notebooks/*.ipynb"))
    }
    every -= {"index"}
    trees, seen = [], set()
    for title, patterns in [*CONTENTS.items(), ("More", ["**"])]:
        found = []
        for pattern in patterns:
            matching = (
                every - seen
                if pattern == "**"
                else {
                    x
                    for x in every
                    if pathlib.PurePosixPath(x).match(pattern)
                    and "/" * x.count("/") == "/" * pattern.count("/")
                }
            )
            found += sorted(matching - set(found) - seen)
        seen |= set(found)
        if found:
            trees.append(
                "\n".join(
                    ["```{toctree}", f":caption: {title}", ":maxdepth: 1", ":hidden:", "", *found, "```"]
                )
            )
    return "\n\n".join(trees) + "\n"


LINK = re.compile(r"(!?\[[^\]]*\])\(([^)#\s]+)(#[^)]*)?\)")


def links(text, folder, page):
    """Returns a page with its links to files of the repository as pages of the site where it has them, and as addresses elsewhere.

    Args:
        text: Markdown, whose links are relative to a folder.
        folder: that folder.
        page: the folder in which the page will stand.
    """
    docs = ROOT / "docs"

    def other(found):
        label, target, anchor = found.groups()
        path = (folder / target).resolve()
        if re.match(r"[a-z]+:", target) or not path.is_relative_to(ROOT) or not path.exists():
            return found.group(0)
        inside = path.relative_to(ROOT).as_posix()
        if inside in PAGES_OF_OTHERS:
            return f"{label}({_relative(docs / 'generated' / (PAGES_OF_OTHERS[inside] + '.md'), page)}{anchor or ''})"
        if inside.startswith("docs/"):
            return f"{label}({_relative(path, page)}{anchor or ''})"
        kind = "tree" if path.is_dir() else "blob"
        return f"{label}({REPOSITORY}/{kind}/main/{inside}{anchor or ''})"

    return LINK.sub(other, text)


def _relative(path, folder):
    up = 0
    while not path.is_relative_to(folder):
        folder, up = folder.parent, up + 1
    return "../" * up + path.relative_to(folder).as_posix()


def links_of_the_site(app, name, source):
    """Mends the links of a page as it is read; a handler of Sphinx's event source-read."""
    folder = pathlib.Path(app.srcdir) / pathlib.PurePosixPath(name).parent
    source[0] = links(source[0], folder, folder)
    if name == "index":
        source[0] += "\n" + (pathlib.Path(app.srcdir) / "generated" / "contents.txt").read_text()


# Tables.


def summary(thing):
    """Returns the first sentence of a docstring, for a cell of a table."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return cell(re.sub(r"(?<=[a-z\d)]\.)\s.*", "", text))


def cell(text):
    """Returns a text as it may stand in a table."""
    return str(text).replace("|", "\\|").replace("<", "&lt;")


def attributes(kind):
    """Returns what a docstring says of the attributes of a class, by name."""
    found, name = {}, None
    section = re.search(r"^Attributes:\n((?:(?:    .*)?\n?)*)", inspect.getdoc(kind) or "", re.MULTILINE)
    for line in section.group(1).splitlines() if section else ():
        first = re.match(r"    (\w+): (.*)", line)
        if first:
            name, found[first.group(1)] = first.group(1), first.group(2)
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def default(field):
    """Returns the default of a field as somebody would write it."""
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "must be given"
    return f"`{short(value)}`"


def short(value):
    """Returns a value in few characters: objects by their class, numbers as numbers."""
    if dataclasses.is_dataclass(value):
        given = [f for f in dataclasses.fields(value) if f.init]
        told = "" if all(_is_default(f, getattr(value, f.name)) for f in given) else "..."
        return f"{type(value).__name__}({told})"
    if hasattr(value, "name") and hasattr(type(value), "__members__"):
        return f"{type(value).__name__}.{value.name}"
    text = str(value)
    return text if len(text) < 40 else text[:37] + "..."


def _is_default(field, value):
    if field.default is dataclasses.MISSING:
        return False
    try:
        return bool(field.default is value or field.default == value)
    except (TypeError, ValueError):
        return False


def yes(flag):
    """Returns a mark where something holds."""
    return "yes" if flag else ""


def fields_of(kinds):
    """Returns a table of the fields of classes."""
    rows = []
    for kind in kinds:
        said = attributes(kind)
        for field in dataclasses.fields(kind):
            if field.init and not field.name.startswith("_"):
                rows.append(
                    f"| `{kind.__name__}` | `{field.name}` | {cell(default(field))} | "
                    f"{cell(said.get(field.name, ''))} |"
                )
    return "\n".join(["| class | field | default | what it is |", "|---|---|---|---|", *rows])


def tables():
    """Returns the page of methods and solvers, as the tests hold them to it."""
    import catalogue

    methods = [
        f"| `{name}` | `{type(m.integrator).__name__}` | {m.order} |"
        f" {', '.join(m.closed) or 'drift'} | {yes(m.symplectic)} | {yes(m.implicit)} |"
        for name, m in catalogue.METHODS.items()
    ]
    solvers = [
        f"| `{name}` | `{short(s.solver)}` | {'any' if s.any_rank else 'full'} | {yes(s.massless)} |"
        f" {yes(s.iterative)} | {summary(type(s.solver))} |"
        for name, s in catalogue.SOLVERS.items()
    ]
    integrators = [
        *list(dict.fromkeys(type(m.integrator) for m in catalogue.METHODS.values())),
        jaxdae.Projected,
        jaxdae.switching.Switching,
    ]
    saddle_point = list(dict.fromkeys(type(s.solver) for s in catalogue.SOLVERS.values()))
    roles = [
        jaxdae.Baumgarte,
        jaxdae.textbook.MultiplierFeedback,
        jaxdae.PositionProjection,
        jaxdae.textbook.LinearPositionProjection,
        jaxdae.VelocityProjection,
    ]
    statuses = [f"| {s.value} | `{s.name}` | {cell(s.meaning)} |" for s in jaxdae.Status]
    return "\n".join(
        [
            "# Tables of methods, solvers and statuses",
            "",
            "Made from `tests/catalogue.py` and the fields of the classes at every build; contract tests "
            "loop over the same rows.",
            "[Choosing methods and solvers](../methods.md) says which to take.",
            "",
            "## Methods",
            "",
            "*Closed*: the levels of constraints that hold to round-off after a step; methods that let them "
            "drift belong into `Projected`.",
            "*Symplectic*: the energy error of a conservative",
            "system stays bounded. *Implicit*: a step iterates and reports how often.",
            "",
            "| name | class | order | closed | symplectic | implicit |",
            "|---|---|---|---|---|---|",
            *methods,
            "",
            "## Fields of methods",
            "",
            fields_of(integrators),
            "",
            "## Solvers",
            "",
            "*Rank*: of the constraint Jacobian, `full` where no row may depend on the others."
            " *Massless*: M needs to be positive on the null",
            "space of J only. *Iterative*: stops at a residual of some 1e-12.",
            "",
            "| name | written as | rank | massless | iterative | what it does |",
            "|---|---|---|---|---|---|",
            *solvers,
            "",
            "## Fields of solvers",
            "",
            fields_of(saddle_point),
            "",
            "## Fields of stabilizations and projections",
            "",
            fields_of(roles),
            "",
            "## Statuses",
            "",
            "[What to do about each](../statuses.md).",
            "",
            "| code | status | meaning |",
            "|---|---|---|",
            *statuses,
            "",
        ]
    )


# Gallery.


def described():
    """Returns what `docs/experiments.md` says of each experiment, by name, in its order."""
    text = (ROOT / "docs" / "experiments.md").read_text()
    points = re.split(r"^- ", text, flags=re.MULTILINE)[1:]
    return {re.match(r"\[`(\w+)`\]", point).group(1): " ".join(point.split()) for point in points}


def gallery(docs):
    """Return the page with a thumbnail of every experiment, which links to its script."""
    lines = [
        "# Gallery",
        "",
        "Each picture links to the script that draws it (`make gallery` runs all scripts). [Experiments](../experiments.md) states the "
        "results.",
        f"The pictures of {', '.join(f'`{name}`' for name in SHORTER)} show shorter runs. The machine was busy while `mpc` was timed.",
        "",
        "::::{grid} 1 2 3 3",
        ":gutter: 3",
        "",
    ]
    for name, text in described().items():
        picture = docs / "pictures" / "experiments" / f"{name}.webp"
        lines += [
            f":::{{grid-item-card}} {name.replace('_', ' ').capitalize()}",
            f":link: {REPOSITORY}/blob/main/experiments/{name}.py",
            *([f":img-top: ../pictures/experiments/{name}.webp"] if picture.exists() else []),
            "",
            caption(name, text),
            ":::",
            "",
        ]
    return "\n".join([*lines, "::::", ""])


def caption(name, text):
    """Return the first clause of a description of an experiment, without links."""
    plain = re.sub(LINK, lambda found: found.group(1)[1:-1], text)
    first = re.split(r"(?<=[a-z\d)])[.:;,](?:\s|$)", plain)[0]
    first = first.removeprefix(f"`{name}`").strip()
    return first[0].upper() + first[1:] + "."


# API.


def api():
    """Returns a page for each public module, by name: every name of its `__all__`, described once on the site."""
    pages, seen, shown = {}, set(), site_examples.shown()
    for full in site_examples.MODULES:
        pages[full] = _module_page(
            site_examples.module(full), full, site_examples.exported(full), seen, shown
        )
    return pages


EXTENDED = (jaxdae.interfaces.AnySystem, jaxdae.System, jaxdae.LagrangianSystem, jaxdae.KinematicSystem)
"""Base classes of systems that users write: all their members are documented."""
ELEMENTS = ("jaxdae.mechanisms.describe", "jaxdae.mechanisms.forces", "jaxdae.mechanisms.joints")
"""Packages of bodies, joints and forces: users only make these. Their members serve the mechanism."""
METHODS = {"begin", "init", "run", "step"}
"""Members of methods and solvers, which `jaxdae.interfaces` documents."""


@functools.cache
def words_of_pages():
    """Return the names that follow a dot on a page, such as `names` in `mechanism.names.rows`."""
    pages = [
        ROOT / "README.md",
        *(page for page in (ROOT / "docs").rglob("*.md") if "generated" not in page.parts),
    ]
    return {word for page in pages for word in re.findall(r"\.([A-Za-z]\w*)", page.read_text())}


def user_members(kind):
    """Return the members of a class that its page documents.

    Protocols, enumerations and the base classes of systems have all members. Other classes have those that
    some page uses and no base class defines.
    """
    own = [name for name in vars(kind) if not name.startswith("_")]
    if getattr(kind, "_is_protocol", False) or kind in EXTENDED:
        return own
    if issubclass(kind, enum.Enum):
        return [name for name in own if name in kind.__members__ or isinstance(vars(kind)[name], property)]
    if kind.__module__.startswith(ELEMENTS):
        return []
    fields = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    inherited = {name for base in kind.__mro__[1:] for name in vars(base)}
    return [
        name
        for name in own
        if name in words_of_pages() - fields - inherited - METHODS
        and (
            inspect.isroutine(vars(kind)[name])
            or isinstance(vars(kind)[name], property | functools.cached_property)
        )
    ]


def _example(full, shown):
    """Returns the lines of a link to the block of code that shows a name, [] where there is none."""
    if full not in shown:
        return []
    page, heading = shown[full]
    to = page.relative_to(site_examples.DOCS).with_suffix(".html").as_posix()
    return ["", f"`Example: {heading} <../../{to}#{site_examples.anchor(heading)}>`__"]


def _module_page(module, full, public, seen, shown):
    lines = [
        f"# {full}",
        "",
        "```{eval-rst}",
        ".. currentmodule:: " + full,
        "",
        *site_docstrings.rst((inspect.getdoc(module) or "").splitlines()),
        "",
    ]
    for name in sorted(public, key=lambda n: (n[0].isupper(), n.lower())):
        thing = getattr(module, name)
        if inspect.ismodule(thing) or name == "__version__":
            continue
        kind = (
            "class"
            if inspect.isclass(thing)
            else "function"
            if callable(thing) and hasattr(thing, "__name__")
            else "data"
        )
        if kind == "class" and issubclass(thing, BaseException):
            kind = "exception"
        again = id(thing) in seen
        seen.add(id(thing))
        members = user_members(thing) if kind == "class" else []
        lines += [
            f".. auto{kind}:: {full}.{name}",
            *([] if kind != "data" else ["   :no-value:"]),
            *([f"   :members: {', '.join(members)}"] if members else []),
            *(["   :no-index:"] if again else []),
            *_example(f"{full}.{name}", shown),
            "",
        ]
    return "\n".join([*lines, "```", ""])
