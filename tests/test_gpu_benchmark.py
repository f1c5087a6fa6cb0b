"""The script `experiments/benchmarks/gpu.py` on a CPU with few worlds and steps."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "experiments" / "benchmarks"


PROGRAM = """
%fused_slice (p.0: f32[100,9]) -> f32[100,3] {
  %p.0 = f32[100,9]{1,0} parameter(0)
  %part = f32[100,3]{1,0} slice(%p.0), slice={[0:100], [0:3]}
  ROOT %negated = f32[100,3]{1,0} negate(%part)
}

%body (state: (f32[100,9], s32[])) -> (f32[100,9], s32[]) {
  %state = (f32[100,9]{1,0}, s32[]) parameter(0)
  %q = f32[100,9]{1,0} get-tuple-element(%state), index=0
  %k = s32[] get-tuple-element(%state), index=1
  %sliced = f32[100,3]{1,0} fusion(%q), kind=kLoop, calls=%fused_slice
  %moved = f32[100,9]{0,1} copy(%q)
  ROOT %next = (f32[100,9]{1,0}, s32[]) tuple(%moved, %k)
}

ENTRY %main (x: f32[100,9], n: s32[]) -> (f32[100,9], s32[]) {
  %x = f32[100,9]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %start = (f32[100,9]{1,0}, s32[]) tuple(%x, %n)
  ROOT %end = (f32[100,9]{1,0}, s32[]) while(%start), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"97"}}
}
"""


def test_kernels_and_bytes_of_a_step_are_counted(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    kernels = importlib.import_module("kernels")
    assert kernels.per_step(PROGRAM, 97) == 2
    assert kernels.bytes_per_step(PROGRAM, 97) == 4 * (300 + 300 + 900 + 900)
    assert kernels.bytes_per_step(PROGRAM, 11) is None


def run(*arguments, **environment):
    """Run the script; return the completed process with its output as text."""
    command = [sys.executable, str(FOLDER / "gpu.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def table(file):
    """Return the rows of the Markdown table as lists of cells."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.long
def test_one_case_is_measured(tmp_path):
    done = run("--quick", "--only", "no command buffers", "--out", tmp_path / "gpu.md")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(tmp_path / "gpu.md")
    assert [row[0] for row in rows] == 2 * ["four-bar, no command buffers"]
    assert [row[1:4] for row in rows] == [["float32", "1", "11"], ["float32", "8", "11"]]
    assert all(float(row[4]) > 0.0 for row in rows)
    assert all(0.0 < float(row[8]) < 5e-6 for row in rows)
    assert "Not measured" not in done.stdout


@pytest.mark.exhaustive
def test_the_copy_bandwidth_is_measured(tmp_path):
    done = run("--quick", "--only", "copy bandwidth", "--out", tmp_path / "gpu.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert table(tmp_path / "gpu.md") == []
    (rate,) = re.findall(r"Copy bandwidth: (\d+) GB/s\.", (tmp_path / "gpu.md").read_text())
    assert int(rate) > 0


@pytest.mark.exhaustive
def test_fused_kernels_are_compared_with_xla(tmp_path):
    done = run(
        "--quick", "--only", "four-bar, fused", "--out", tmp_path / "gpu.md", JAXDAE_KERNELS=str(tmp_path)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(tmp_path / "gpu.md")
    titles = ("four-bar, fused", "four-bar, fused, gradient")
    assert {(row[0], row[1]) for row in rows} == {
        (title, dtype) for title in titles for dtype in ("float32", "float64")
    }
    assert all(float(row[9]) < {"float32": 1e-5, "float64": 1e-13}[row[1]] for row in rows)


@pytest.mark.exhaustive
def test_a_fused_case_without_a_compiler_fails(tmp_path):
    done = run("--quick", "--only", "humanoid, fused", CXX="no-such-compiler", JAXDAE_KERNELS=str(tmp_path))
    assert done.returncode == 1
    assert "- humanoid, fused, float32, worlds 8: failed, " in done.stdout


def test_missing_tools_are_named(tmp_path):
    (tmp_path / "mujoco").mkdir()
    (tmp_path / "mujoco" / "__init__.py").write_text("")  # a package without mjx
    done = run("--quick", "--only", "MJX", "--vendor", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "- four-bar in MJX, float32, worlds 8: skipped, mujoco-mjx is not installed\n" in done.stdout
    done = run("--quick", "--only", "four-bar, fused, profiled", PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "- four-bar, fused, profiled, float32, worlds 8: skipped, ncu is not on PATH\n" in done.stdout


@pytest.mark.exhaustive
def test_reports_of_the_profiler_are_listed(tmp_path):
    """A stand-in for `ncu` prints a report and runs the program."""
    (tmp_path / "ncu").write_text(
        '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift 2; done\necho "Duration us 7"\nexec "$@"\n'
    )
    (tmp_path / "ncu").chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = run("--quick", "--only", "four-bar, fused, profiled", "--out", tmp_path / "gpu.md", PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert table(tmp_path / "gpu.md") == []
    assert (
        "\n## four-bar, fused, profiled\n\n```text\nDuration us 7\n```\n" in (tmp_path / "gpu.md").read_text()
    )


def test_a_missing_package_is_named_first(tmp_path):
    missing = "raise ModuleNotFoundError(\"No module named 'jaxtyping'\", name='jaxtyping')\n"
    (tmp_path / "jaxtyping.py").write_text(missing)
    done = run("--quick", "--vendor", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "gpu.py: cannot import jaxtyping. On a machine with network run\n"
        "    pip install --no-deps --target vendor jaxtyping wadler-lindig\n"
        "Copy the folder vendor here and add --vendor vendor.\n"
    )


def test_skipped_cases_are_listed(tmp_path):
    done = run("--budget", 0, "--out", tmp_path / "gpu.md")
    assert done.returncode == 0
    assert table(tmp_path / "gpu.md") == []
    text = (tmp_path / "gpu.md").read_text()
    assert text.count("no time left") == 23
    assert "- copy bandwidth: skipped, no time left\n" in text
    assert "- four-bar, float32, worlds 1, 1000, 100000, 1000000: skipped, no time left\n" in text


@pytest.mark.long
def test_failed_cases_are_listed():
    done = run("--quick", "--only", "Andrews, gradient", XLA_FLAGS="--xla_no_such_flag=1")
    assert done.returncode == 1
    assert "- Andrews, gradient, float32, worlds 8: failed, " in done.stdout


@pytest.mark.exhaustive
def test_all_cases_are_measured(tmp_path):
    done = run("--quick", "--budget", 3000, "--out", tmp_path / "gpu.md")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for row in table(tmp_path / "gpu.md") if row[0] != "four-bar in MJX"]
    assert len(rows) == 26
    assert len({(row[0], row[1]) for row in rows}) == 19
    allowed = {"float32": 5e-6, "float64": 2e-10}
    assert all(float(row[8]) < allowed[row[1]] for row in rows)


@pytest.mark.exhaustive
def test_a_case_stops_at_its_limit_and_keeps_its_rows(tmp_path):
    done = run("--budget", 25, "--only", "four-bar, no command buffers", "--out", tmp_path / "gpu.md")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "gpu.md").read_text()
    assert table(tmp_path / "gpu.md")[0][:4] == ["four-bar, no command buffers", "float32", "1", "997"]
    assert "1000000: skipped, stopped after 25 s\n" in text


@pytest.mark.exhaustive
def test_a_violation_that_is_too_large_fails():
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import gpu, gpu_models\n"
        "gpu_models.Model.allowed_violation = lambda self: 1e-9\n"
        "list(gpu.measure(gpu.Case('four-bar in joint coordinates'), True))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: 8 worlds: violation " in done.stderr
    assert "allowed 1.0e-09 m" in done.stderr
