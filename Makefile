# Every target sets up .venv itself when it is missing, broken, or older than pyproject.toml. Needs only Python >= 3.11
# with venv. `make demo PYTHON=/path/to/python3.12` chooses the interpreter (of a new .venv: `make clean` first).
#
#   make demo        simulate 256 worlds of Andrews' squeezing mechanism and check them against the reference solution
#   make test        lint, then the quick tests        (PYTEST_ARGS="-k andrews" passes arguments on)
#   make test-all    the same, then the long tests: whole experiments, long rollouts, every method and every problem
#   make test-exhaustive  the remaining combinations of methods, problems and seeds; takes about an hour
#   make test-peers  the programs of docs/coming_from.md in other engines; downloads them, some 300 MB
#   make test-wheel  the wheel, built and installed into an empty environment, runs an example
#   make first-hour  the same, then what a stranger does in the first hour
#   make docs        the site, into build/docs/html; warnings are errors
#   make notebooks   the notebooks of docs/notebooks anew, with their outputs
#   make gallery     every experiment anew, and its picture for the site; takes about an hour
#   make test-robots the published robots against other engines; downloads their files, 131 MB
#   make test-viewer scenes in a browser without a display: installs viser, needs Chromium (Debian: apt-get install chromium)
#   make test-recipes  the recipes of docs/results.md: downloads pyarrow, rerun and PyTorch, some GB
#   make test-envs   environments by the checkers of Gymnasium, gymnax and brax, and PPO of brax; an environment of its own, 300 MB
#   make lint        ruff and pyright
#   make bench       time jaxdae, MuJoCo, MJX, then many bodies, robots, fused kernels, limits (BENCH_ARGS="--quick" passes arguments on)
#   make venv        set up .venv
#   make clean       remove .venv, builds and caches; runs/ stays

PYTHON ?=
PYTEST_ARGS ?= -n 2 --dist loadfile
BENCH_ARGS ?=

CANDIDATES := $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11)
PIP := .venv/bin/python -m pip
CHECKED := .venv/bin/python -c 'import os, pip, sys; sys.exit(os.path.abspath(".venv/bin") not in open(".venv/bin/pip").read())'
# A folder that was moved or a system Python that was upgraded leaves an environment behind that looks complete.
BROKEN := $(shell $(CHECKED) 2>/dev/null || echo broken)

.PHONY: demo test test-all test-exhaustive test-robots test-peers test-viewer test-recipes test-envs test-wheel first-hour docs notebooks gallery lint bench venv clean broken
.DELETE_ON_ERROR:

demo: .venv/.installed
	.venv/bin/python experiments/squeezing_mechanism.py

# Every quick test fails within minutes; what they show in one case, the long ones confirm in many.
test: lint
	.venv/bin/python -m pytest -m "not long" $(PYTEST_ARGS)

test-all: test test-wheel
	.venv/bin/python -m pytest -m "long and not exhaustive" $(PYTEST_ARGS)

test-exhaustive: .venv/.installed
	.venv/bin/python -m pytest -m exhaustive $(PYTEST_ARGS)

# Installs afresh, and once: first-hour goes on in the same environment.
test-wheel: .venv/.installed
	.ci/wheel build/wheel-env app .venv/bin/python
	.ci/test-wheel build/wheel-env

first-hour: test-wheel
	rm -rf build/first-hour && mkdir -p build/first-hour
	cd build/first-hour && ../wheel-env/bin/python ../../tests/first_hour.py

# An environment of its own: the tools of the site pin what others use.
docs: build/docs-env/.installed
	build/docs-env/bin/python -m sphinx --fail-on-warning --keep-going --jobs 1 -b html -d build/docs/doctrees docs build/docs/html

build/docs-env/.installed: pyproject.toml .venv/.installed
	.venv/bin/python -m venv --clear build/docs-env
	build/docs-env/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

notebooks: build/docs-env/.installed
	build/docs-env/bin/python docs/site_notebooks.py

gallery: .venv/.installed
	for experiment in experiments/*.py; do .venv/bin/python $$experiment --out build/gallery || exit 1; done
	.venv/bin/python docs/pictures.py build/gallery

test-robots: .venv/.installed
	$(PIP) install --quiet --disable-pip-version-check --no-deps example-robot-data==6.0.0
	.venv/bin/python -m pytest tests/test_robot_trees.py tests/test_robot_sdf.py tests/test_robot_trajectories.py

# An environment of its own: these engines pin what others use.
test-peers: .venv/.installed
	.venv/bin/python -m venv --clear build/peers-env
	build/peers-env/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[app,dev]' drake exudyn pin
	build/peers-env/bin/python -m pytest tests/test_coming_from.py

# viser pins older releases of what other extras use, so that it gets an environment of its own.
test-viewer: .venv-viewer/.installed
	.venv-viewer/bin/python -m pytest tests/test_viewer.py tests/test_viewer_browser.py tests/test_robot_visuals.py tests/app/test_view.py 'tests/test_examples.py::test_examples_print_what_they_say[live]' tests/test_examples.py::test_the_guide_to_the_viewer_runs

.venv-viewer/.installed: pyproject.toml .venv/.installed
	.venv/bin/python -m venv --clear .venv-viewer
	.venv-viewer/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[app,dev,viewer,export]'
	@touch $@

test-recipes: .venv/.installed
	.venv/bin/python -m venv --clear build/recipes-env
	build/recipes-env/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[app,dev]' pyarrow rerun-sdk torch
	build/recipes-env/bin/python -m pytest tests/test_recipes.py

# brax needs JAX before 0.10, and gymnax needs six, which it does not name.
test-envs: .venv/.installed
	.venv/bin/python -m venv .venv-envs
	.venv-envs/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[app,dev]' 'jax==0.9.*' brax 'gymnax>=1.0.1' six
	.venv-envs/bin/python -m pytest tests/envs 'tests/test_examples.py::test_examples_print_what_they_say[elsewhere]' \
		'tests/test_examples.py::test_examples_print_what_they_say[cassie]'

lint: .venv/.installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 .venv/bin/pyright

bench: .venv/.installed-bench
	.venv/bin/python experiments/benchmarks/peers.py $(BENCH_ARGS)
	.venv/bin/python experiments/benchmarks/many_bodies.py $(if $(filter --quick,$(BENCH_ARGS)),--quick)
	.venv/bin/python experiments/benchmarks/robots.py $(if $(filter --quick,$(BENCH_ARGS)),--quick)
	.venv/bin/python experiments/benchmarks/fused_kernels.py $(if $(filter --quick,$(BENCH_ARGS)),--models four-bar)
	.venv/bin/python experiments/benchmarks/limits.py $(if $(filter --quick,$(BENCH_ARGS)),--models four-bar)

venv: .venv/.installed

.venv/.installed: pyproject.toml $(BROKEN)
	@if ! $(CHECKED) 2>/dev/null; then \
		found=; old=; \
		for python in $(CANDIDATES); do \
			"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { old="$$old $$python"; continue; }; \
			found="$$python"; break; \
		done; \
		if [ -z "$$found" ]; then \
			echo "jaxdae needs Python 3.11 or newer; missing, older or not working:$$old." >&2; \
			echo "Install one, or name it: make $(or $(MAKECMDGOALS),demo) PYTHON=/path/to/python3.12" >&2; exit 1; \
		fi; \
		"$$found" -c 'import ensurepip, venv' 2>/dev/null || { \
			echo "$$found lacks the venv module (Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }; \
		echo "Setting up .venv with $$("$$found" --version); the first time takes a few minutes."; \
		"$$found" -m venv --clear .venv; \
	fi
	$(PIP) install --quiet --disable-pip-version-check --editable '.[app,dev]'
	@touch $@

.venv/.installed-bench: .venv/.installed
	$(PIP) install --quiet --disable-pip-version-check --editable '.[app,dev,bench]'
	@touch $@

broken:

clean:
	rm -rf .venv .venv-viewer .venv-envs build dist .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
