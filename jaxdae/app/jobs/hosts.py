"""Distributed runs: connect several processes, on one or more hosts, and synchronize them.

The runtime of JAX (`jax.distributed`) connects the processes. Process 0 is the coordinator, and the other
processes connect to its address. Under SLURM and Open MPI, JAX reads the process count, the process index and
the devices from environment variables. This module derives the address from the same variables by the same
rule as JAX, because JAX ends a process without a helpful message if the coordinator does not answer.
Simulations use the connection only to divide the work and to wait for its end. They exchange no arrays; the
results meet on the disk.
"""

import contextlib
import dataclasses
import errno
import os
import re
import socket
import threading
import time
from collections.abc import Iterator

import jax
import numpy as np

from jaxdae.app.config.problems import Failed, Refused
from jaxdae.app.jobs import gpus
from jaxdae.app.runs import interrupts
from jaxdae.app.runs.console import note

_SECONDS = 120.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    [0, 0, 0, 4, 0, 0, 0, 0, 0]
)  # HTTP/2 preface (RFC 9113)
_SETTINGS = 4  # type of the first frame from an HTTP/2 server, in its fourth byte
_PATIENCE = 0.9  # fraction of the connection timeout after which the waiting processes print a note
_PORTS = 4096  # number of ports at the end of the range from which jobs choose
_SCHEDULERS = {"SLURM_JOB_ID": "SLURM", "OMPI_COMM_WORLD_SIZE": "Open MPI"}
_EXAMPLE = "--coordinator HOST:PORT --processes N --process I with I from 0, or a start by srun or mpirun"


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Processes of a run.

    Attributes:
        index: index of this process.
        count: number of processes.
    """

    index: int
    count: int

    def meet(self) -> None:
        """Wait until all processes reach this call.

        Raises:
            Failed: another process ended in the meantime.
        """
        from jax.experimental import multihost_utils

        try:
            multihost_utils.sync_global_devices("jaxdae")
        except RuntimeError as error:
            lost = "another process ended before this process; repeat the same command to continue"
            raise Failed(f"--distributed: {lost} ({error})") from error


def join(
    coordinator: str | None, processes: int | None, process: int | None, seconds: float = _SECONDS
) -> Hosts:
    """Connect this process to the other processes; call this function before any computation.

    Args:
        coordinator: address of process 0, HOST:PORT; None if SLURM or Open MPI provide it.
        processes: number of processes; None if SLURM or Open MPI provide it.
        process: index of this process; None if SLURM or Open MPI provide it.
        seconds: timeout of the connection in s.

    Raises:
        Refused: options are missing or contradict each other, the port is in use, process 0 does not answer,
            or a host has fewer GPUs than processes.
    """
    given = {"--coordinator": coordinator, "--processes": processes, "--process": process}
    missing = [name for name, value in given.items() if value is None]
    if coordinator is not None and processes is not None and process is not None:
        host, port = _address(coordinator)
        if not 0 <= process < processes:
            raise Refused(f"--process: got {process} of {processes} processes, expected 0 to {processes - 1}")
        devices = gpus.own(gpus.place(host, process, processes))
        listening = _listening(host, port) if process == 0 else None
        if process > 0:
            _wait_for(host, port, seconds)
        return _connected(_joined(host, port), processes, process, devices, seconds, listening)
    scheduler = next((name for variable, name in _SCHEDULERS.items() if variable in os.environ), None)
    if len(missing) < len(given) or scheduler is None:
        got = (
            f"no {', no '.join(missing)}"
            if len(missing) < len(given)
            else "neither options nor the environment of SLURM or Open MPI"
        )
        raise Refused(f"--distributed: got {got}, expected {_EXAMPLE}")
    host, port, index = _slurm() if scheduler == "SLURM" else _open_mpi()
    devices = gpus.own(gpus.place(host, None, None))
    listening = _listening(host, port) if index == 0 else None
    if index > 0:
        _wait_for(host, port, seconds)
    return _connected(_joined(host, port), None, None, devices, seconds, listening)


def _slurm() -> tuple[str, int, int]:
    """Return host and port of process 0 and the index of this process under SLURM.

    The host is the first host of the job step. The port follows from the job number.
    """
    given = os.environ
    if "SLURM_PROCID" not in given or "SLURM_STEP_NODELIST" not in given:
        raise Refused(
            "--distributed: got a shell inside of a SLURM job instead of a task, expected a start by srun"
        )
    first = re.match(
        r"([^,\[]+)(?:\[([^,\]-]+))?", given["SLURM_STEP_NODELIST"]
    )  # node17,node18 or node[17-20,22]
    host = "".join(part or "" for part in first.groups()) if first else "localhost"
    return host, _port(int(given["SLURM_JOB_ID"])), int(given["SLURM_PROCID"])


def _open_mpi() -> tuple[str, int, int]:
    """Return host and port of process 0 and the index of this process under Open MPI.

    The host is the host of mpirun. The port follows from the number of its job, which is a multiple of 4096.
    """
    given = os.environ
    uri = re.match(r"(\d+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", given.get("OMPI_MCA_orte_hnp_uri", ""))
    if uri is None:
        options = "--coordinator HOST:PORT --processes $OMPI_COMM_WORLD_SIZE --process $OMPI_COMM_WORLD_RANK"
        raise Refused(
            "--distributed: got an Open MPI release that does not give the address of mpirun (5 and later), "
            f"expected {options}"
        )
    return uri[2] or uri[3], _port(int(uri[1]) // _PORTS), int(given["OMPI_COMM_WORLD_RANK"])


def _port(job: int) -> int:
    return int(os.environ.get("JAX_COORDINATOR_PORT") or 65536 - _PORTS + job % _PORTS)


def _connected(
    coordinator: str,
    processes: int | None,
    process: int | None,
    devices: list[int] | None,
    seconds: float,
    listening: str | None,
) -> Hosts:
    options = {"initialization_timeout": int(seconds), "coordinator_bind_address": listening}
    try:
        with _told_of_absent(coordinator, seconds):
            jax.distributed.initialize(coordinator, processes, process, devices, **options)
        hosts = Hosts(jax.process_index(), jax.process_count())
        # The first collective connects all pairs, with a timeout of half a minute on a CPU.
        # Run it now, while all processes are here.
        said = _said_by_all(processes or hosts.count)
    except (RuntimeError, ValueError) as error:
        raise Refused(
            f"--distributed: JAX could not connect the processes ({error}); expected {_EXAMPLE}"
        ) from error
    interrupts.check()
    if len(said) > 1:
        raise Refused(
            f"--processes: got {' and '.join(map(str, sorted(said)))} from different processes, expected the "
            "same number from all"
        )
    return hosts


def _said_by_all(number: int) -> set[int]:
    """Return the set of the values that all processes contribute."""
    from jax.experimental import multihost_utils

    return {int(x) for x in np.ravel(multihost_utils.process_allgather(np.asarray(number, np.int32)))}


@contextlib.contextmanager
def _told_of_absent(coordinator: str, seconds: float) -> Iterator[None]:
    """Print a note shortly before the timeout if processes are missing.

    At the timeout, the compiled code of JAX ends this process without an exception.
    """
    told = (
        f"--distributed: after {_PATIENCE * seconds:g} s, processes are missing at {coordinator}, or two "
        f"have the same number; after {seconds:g} s, JAX ends this process with exit code 134; start all "
        "processes at the same time, each with its own number"
    )
    timer = threading.Timer(_PATIENCE * seconds, note, [told])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _address(coordinator: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%\w]+\]|[^\[\]:]+):(\d{1,5})", coordinator)
    if found is None or not 0 < int(found[2]) < 65536:
        raise Refused(
            f"--coordinator: got {coordinator!r}, expected HOST:PORT, such as node17:12345 or [::1]:12345"
        )
    return found[1].strip("[]"), int(found[2])


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> str | None:
    """Return the address on which process 0 listens: the address of the host, or None for all interfaces.

    Many systems map their own name to a loopback address in /etc/hosts, which other hosts cannot use. With
    address translation, no interface has the address. In both cases, process 0 listens on all interfaces.

    Raises:
        Refused: the port is in use.
    """
    try:
        found = {entry[4][0]: entry[0] for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        found = {}
    here = gpus.LOOPBACK.fullmatch(host)
    usable = [address for address in found if here or not gpus.LOOPBACK.fullmatch(str(address))]
    own = [address for address in usable if _is_free(found[address], host, str(address), port)]
    if own:
        return _joined(str(own[0]), port)
    _is_free(socket.AF_INET, host, "", port)
    note(
        f"--coordinator: process 0 listens on all interfaces, because no interface has the address of {host}"
    )
    return None


def _is_free(family: int, host: str, address: str, port: int) -> bool:
    """Return whether this host owns the address; the port must be free.

    Raises:
        Refused: the port is in use, or this process cannot open it.
    """
    try:
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address, port))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        given = _joined(host, port)
        raise Refused(
            f"--coordinator: got {given}, a port that process 0 cannot open ({error.strerror}); choose "
            "another port"
        ) from None
    return True


def _wait_for(host: str, port: int, seconds: float) -> None:
    """Wait until process 0 answers; without an answer, JAX would end this process with no helpful message."""
    until, reason = time.monotonic() + seconds, ""
    while time.monotonic() < until:
        try:
            with socket.create_connection((host, port), timeout=5.0) as connection:
                connection.sendall(_GREETING)
                # JAX uses gRPC over HTTP/2 and ends the process if the server speaks another protocol.
                if connection.recv(9)[3:4] == bytes([_SETTINGS]):
                    return
            reason = "the answer does not come from JAX"
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.2)
        interrupts.check()
    raise Refused(
        f"--coordinator: got {host}:{port}, where process 0 did not answer for {seconds:g} s ({reason}); "
        "start process 0 there, choose a free port, and open it in the firewall between the hosts"
    )
