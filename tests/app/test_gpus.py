"""Which GPUs a process takes where several run on one host: by what SLURM, Open MPI and the user tell,
without any GPU.
"""

import re
import types

import jax
import pytest
from all_cases import all_cases

from jaxdae.app.config.problems import Refused
from jaxdae.app.jobs import gpus, hosts

# The sixth of eight tasks on two hosts.
SLURM = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "5", "SLURM_STEP_NODELIST": "a[1-2]"}
SLURM |= {"SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}


@pytest.fixture
def told(monkeypatch):
    """A function that makes the environment say these things about processes and GPUs, and nothing else."""

    def tell(**variables):
        for name in (
            "JAX_LOCAL_DEVICE_IDS",
            "CUDA_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "SLURM_GPUS_ON_NODE",
        ):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    monkeypatch.setattr(gpus, "_used", lambda platforms: True)
    return tell


def test_the_place_of_a_process_on_its_host(told):
    assert gpus.place("node17", 3, 8) is None
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert gpus.place(host, 3, 8) == (3, 8)
    told(SLURM_LOCALID="3", SLURM_NODEID="2", SLURM_STEP_TASKS_PER_NODE="8(x2),4")
    assert gpus.place("node17", None, None) == (3, 4)
    told(OMPI_COMM_WORLD_LOCAL_RANK="1", OMPI_COMM_WORLD_LOCAL_SIZE="2")
    assert gpus.place("node17", 5, 8) == (1, 2)


@all_cases(
    ("at", "variables", "taken"),
    [
        # Nobody tells how many there are on the host, or which GPUs are seen: as JAX does where it knows.
        (None, {"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        ((0, 1), {}, None),
        ((3, 8), {}, [3]),
        ((3, 8), {"JAX_LOCAL_DEVICE_IDS": "6,7"}, None),
        # A host of its own: all GPUs.
        ((0, 1), {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}, [0, 1, 2, 3]),
        # --gpus-per-task=1: the only one that is seen, whatever its number in the host.
        ((3, 8), {"CUDA_VISIBLE_DEVICES": "3", "SLURM_GPUS_ON_NODE": "8"}, [0]),
        ((3, 8), {"CUDA_VISIBLE_DEVICES": "3"}, [0]),
        ((1, 2), {"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "4"}, [0, 1]),
        # All see all: each takes its share.
        ((3, 8), {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, [3]),
        ((1, 2), {"ROCR_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}, [2, 3]),
        # Somebody hides them.
        ((1, 2), {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, [1]),
    ],
)
def test_every_process_takes_its_own(told, at, variables, taken):
    told(**variables)
    assert gpus.own(at and gpus.Place(*at)) == taken


def test_more_processes_than_gpus(told, monkeypatch):
    """Refused before any process waits for another; on CPUs nothing is."""
    told(**SLURM, CUDA_VISIBLE_DEVICES="0,1", SLURM_GPUS_ON_NODE="2")
    message = (
        "got 4 processes on a host that see the same 2 GPUs, expected one process per GPU, such as srun "
        "--ntasks-per-node=2 "
    )
    with pytest.raises(Refused, match=re.escape(message)):
        hosts.join(None, None, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "1")
    with pytest.raises(Refused, match="see the same GPU, expected"):
        hosts.join("localhost:4711", 4, 1)
    monkeypatch.setattr(gpus, "_used", lambda platforms: False)
    assert gpus.own(gpus.Place(1, 4)) is None


def test_gpus_are_used_where_jax_has_a_plugin_for_them_and_may(monkeypatch):
    monkeypatch.setattr(
        gpus.importlib.metadata, "entry_points", lambda group: [types.SimpleNamespace(name="xla_cuda13")]
    )
    assert [gpus._used(platforms) for platforms in (None, "", "cuda,cpu", "cpu")] == [True, True, True, False]
    monkeypatch.setattr(gpus.importlib.metadata, "entry_points", lambda group: [])
    assert not gpus._used(None)


def test_jax_is_told_which(told, monkeypatch):
    given = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *arguments, **options: given.append(arguments))
    monkeypatch.setattr(hosts.Hosts, "meet", lambda self: None)
    monkeypatch.setattr(hosts, "_wait_for", lambda *arguments: None)
    told(**SLURM, CUDA_VISIBLE_DEVICES="1", SLURM_GPUS_ON_NODE="4")
    hosts.join(None, None, None)
    hosts.join("a1:4711", 8, 5)
    assert given == [("a1:61457", None, None, [0]), ("a1:4711", 8, 5, [0])]
