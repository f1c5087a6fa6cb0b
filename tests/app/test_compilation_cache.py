"""Compiled programs are kept where they should be, and a second run of a config compiles nothing."""

import os
import pathlib
import subprocess
import sys

import jax
import pytest

from jaxdae.app import compilation_cache

ROOT = pathlib.Path(__file__).parents[2]
NAMES = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture
def settings(monkeypatch):
    """What is told to JAX; nothing is told to the process of the tests."""
    told = {}
    monkeypatch.setattr(jax.config, "update", lambda name, value: told.update({name: value}))
    for name in (*(name.upper() for name in NAMES), "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(compilation_cache.LOG_LEVEL, "3")
    return told


def test_the_folder_follows_the_environment(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, base in (
        ("", tmp_path / ".cache"),
        ("relative", tmp_path / ".cache"),
        (str(tmp_path / "x"), tmp_path / "x"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        compilation_cache.use()
        place = pathlib.Path(settings["jax_compilation_cache_dir"])
        assert place.parent == base / "jaxdae"
        assert place.is_dir()
        assert place.name.startswith("jaxlib-")
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 0.0
    settings.clear()
    # Where XLA reports what it loads, where nothing can be written, and where the user has said it, no folder
    # is chosen.
    monkeypatch.setenv(compilation_cache.LOG_LEVEL, "1")
    compilation_cache.use()
    assert settings == {}
    monkeypatch.setenv(compilation_cache.LOG_LEVEL, "3")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    compilation_cache.use()
    assert settings == {}
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1")
    compilation_cache.use()
    assert settings == {"jax_persistent_cache_min_entry_size_bytes": -1}


@pytest.mark.long
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
            "from _jaxdae_command import main; main()",
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
