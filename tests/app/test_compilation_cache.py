"""Compiled programs are kept where they should be, and a second run of a config compiles nothing."""

import os
import pathlib
import subprocess
import sys

import pytest

from jaxdae.app import compilation_cache

ROOT = pathlib.Path(__file__).parents[2]
TIME, SIZE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"


def test_the_folder_follows_the_environment(tmp_path, monkeypatch):
    settings = {compilation_cache.LOG_LEVEL: "3"}
    monkeypatch.setenv("HOME", str(tmp_path))

    def told():
        compilation_cache.use(settings)
        return {name: settings.pop(name) for name in list(settings) if name.startswith("JAX_")}

    for given, base in (
        ("", tmp_path / ".cache"),
        ("relative", tmp_path / ".cache"),
        (str(tmp_path / "x"), tmp_path / "x"),
    ):
        settings["XDG_CACHE_HOME"] = given
        found = told()
        place = pathlib.Path(found.pop(compilation_cache.FOLDER))
        assert place.parent == base / "jaxdae"
        assert place.is_dir()
        assert place.name.startswith("jaxlib-")
        assert found == {TIME: "0", SIZE: "-1"}
    # Where XLA reports what it loads, where nothing can be written, and where the user has said it, no folder
    # is chosen.
    settings[compilation_cache.LOG_LEVEL] = "1"
    assert told() == {}
    settings[compilation_cache.LOG_LEVEL] = "3"
    (tmp_path / "file").write_text("")
    settings["XDG_CACHE_HOME"] = str(tmp_path / "file")
    assert told() == {}
    settings |= {compilation_cache.FOLDER: "elsewhere", TIME: "1"}
    assert told() == {compilation_cache.FOLDER: "elsewhere", TIME: "1", SIZE: "-1"}


@pytest.mark.exhaustive
def test_a_second_run_compiles_nothing(tmp_path):
    """Nothing is added to what is kept, and what is kept broken does no harm."""

    def run():
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JAX_", "TF_CPP", "XLA_"))
        }
        environment |= {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        program = [
            sys.executable,
            "-c",
            "from jaxdae.__main__ import main; main()",
            "run",
            str(ROOT / "configs" / "crank_rocker.yaml"),
        ]
        sets = [
            "--set",
            "output.plots=false",
            "--set",
            "output.overlay=[]",
            "--set",
            "duration=0.1",
            "--out",
            str(tmp_path / "runs"),
        ]
        done = subprocess.run([*program, *sets], capture_output=True, text=True, env=environment, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("jaxdae/*/*")}, done

    kept, first = run()
    assert any(name.startswith("jit__block-") for name in kept)
    assert "compiling the steps" in first.stdout
    again, second = run()
    assert again == kept
    assert "cpu_aot_loader" not in second.stderr
    (largest,) = tmp_path.glob("jaxdae/*/jit__block-*")
    largest.write_bytes(largest.read_bytes()[:1000])
    _, broken = run()
    assert "Error reading persistent compilation cache entry" in broken.stderr
