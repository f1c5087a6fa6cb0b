"""Several processes, on one host or on many, as one run: who they are, and where they wait for each other.

JAX's own runtime connects them (`jax.distributed`): process 0 is the coordinator, and the others find it by its address. Under SLURM and
Open MPI it reads number, index and devices from their environment variables; the address is made here from the same, as JAX makes it,
because JAX ends a process without a word that helps where nobody answers there. Simulations need it to know who simulates what and when all
are done, and for nothing else: no array travels, results meet on the disk.
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

from jaxdae.app import gpus, interrupts
from jaxdae.app.problems import Failed, Refused
from jaxdae.app.telling import note

_SECONDS = 120.0
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # of a client of HTTP/2, by RFC 9113
_SETTINGS = 4  # the type of the frame with which a server of it begins, its fourth byte
_PATIENCE = 0.9  # of the time for all processes to come, after which those that are here are told
_PORTS = 4096  # the last of all, of which jobs choose theirs
_SCHEDULERS = {"SLURM_JOB_ID": "SLURM", "OMPI_COMM_WORLD_SIZE": "Open MPI"}
_EXAMPLE = "--coordinator HOST:PORT --processes N --process I, I from 0, or a start by srun or mpirun"


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The processes of a run.

    Attributes:
        index: which of them this is.
        count: how many there are.
    """

    index: int
    count: int

    def meet(self) -> None:
        """Waits until all processes are here.

        Raises:
            Failed: another one has ended meanwhile.
        """
        from jax.experimental import multihost_utils

        try:
            multihost_utils.sync_global_devices("jaxdae")
        except RuntimeError as error:
            lost = "another process ended while this one waited for it; the same command goes on with what is missing"
            raise Failed(f"--distributed: {lost} ({error})") from error


def join(coordinator: str | None, processes: int | None, process: int | None, seconds: float = _SECONDS) -> Hosts:
    """Connects this process with the others; call it before anything is computed.

    Args:
        coordinator: address of process 0, HOST:PORT; None where SLURM or Open MPI tell.
        processes: how many there are; None likewise.
        process: which of them this is; None likewise.
        seconds: how long it waits for the others.

    Raises:
        Refused: options that are missing or contradict each other, a port that is taken, nobody at the address, or fewer GPUs than
            processes on a host.
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
        got = f"no {', no '.join(missing)}" if len(missing) < len(given) else "neither options nor the environment of SLURM or Open MPI"
        raise Refused(f"--distributed: got {got}, expected {_EXAMPLE}")
    host, port, index = _slurm() if scheduler == "SLURM" else _open_mpi()
    devices = gpus.own(gpus.place(host, None, None))
    listening = _listening(host, port) if index == 0 else None
    if index > 0:
        _wait_for(host, port, seconds)
    return _connected(_joined(host, port), None, None, devices, seconds, listening)


def _slurm() -> tuple[str, int, int]:
    """Returns host and port of process 0, and which process this is: the first host of the step, a port by the number of the job."""
    given = os.environ
    if "SLURM_PROCID" not in given or "SLURM_STEP_NODELIST" not in given:
        raise Refused("--distributed: got a shell inside of a SLURM job that is no task of it, expected a start by srun")
    first = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", given["SLURM_STEP_NODELIST"])  # node17,node18 or node[17-20,22]
    host = "".join(part or "" for part in first.groups()) if first else "localhost"
    return host, _port(int(given["SLURM_JOB_ID"])), int(given["SLURM_PROCID"])


def _open_mpi() -> tuple[str, int, int]:
    """Returns the same under Open MPI: the host of mpirun, a port by the number of its job, a multiple of 4096."""
    given = os.environ
    uri = re.match(r"(\d+)\..*?(?:tcp://([^,:]+)|tcp6://\[([^,\]]+))", given.get("OMPI_MCA_orte_hnp_uri", ""))
    if uri is None:
        options = "--coordinator HOST:PORT --processes $OMPI_COMM_WORLD_SIZE --process $OMPI_COMM_WORLD_RANK"
        raise Refused(f"--distributed: got an Open MPI that does not tell where mpirun is, as releases from 5 on, expected {options}")
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
        # The first exchange of data connects each with each, for which XLA gives a CPU half a minute: now, while all are here.
        said = _said_by_all(processes or hosts.count)
    except (RuntimeError, ValueError) as error:
        raise Refused(f"--distributed: JAX could not connect the processes ({error}); expected {_EXAMPLE}") from error
    interrupts.check()
    if len(said) > 1:
        raise Refused(f"--processes: got {' and '.join(map(str, sorted(said)))} of processes that met, expected the same number from all")
    return hosts


def _said_by_all(number: int) -> set[int]:
    """Returns the numbers that all processes say."""
    from jax.experimental import multihost_utils

    return {int(x) for x in np.ravel(multihost_utils.process_allgather(np.asarray(number, np.int32)))}


@contextlib.contextmanager
def _told_of_absent(coordinator: str, seconds: float) -> Iterator[None]:
    """Says shortly before the time is over that other processes have not come: JAX then ends this one in its compiled code, unasked."""
    told = (
        f"--distributed: got fewer processes at {coordinator} in {_PATIENCE * seconds:g} s than there are to be, or two of one number;"
        f" after {seconds:g} s JAX ends this one, with exit code 134; start all of them at the same time, each with a number of its own"
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
        raise Refused(f"--coordinator: got {coordinator!r}, expected HOST:PORT, such as node17:12345 or [::1]:12345")
    return found[1].strip("[]"), int(found[2])


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listening(host: str, port: int) -> str | None:
    """Return the address at which process 0 listens: that of the host, or None for all interfaces.

    Other hosts cannot use the loopback address that many systems give to their own name in /etc/hosts. With address
    translation no interface has the address. In both cases process 0 listens on all interfaces.

    Raises:
        Refused: something else uses the port.
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
    note(f"--coordinator: process 0 listens on all interfaces, because no interface has the address of {host}")
    return None


def _is_free(family: int, host: str, address: str, port: int) -> bool:
    """Return whether this host has an address at which the port is free.

    Raises:
        Refused: something else uses the port.
    """
    try:
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address, port))
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return False
        given = _joined(host, port)
        raise Refused(f"--coordinator: got {given}, a port that process 0 cannot open ({error.strerror}); choose another") from None
    return True


def _wait_for(host: str, port: int, seconds: float) -> None:
    """Waits until process 0 answers: where nobody does, JAX would end the process without a word that helps."""
    until, reason = time.monotonic() + seconds, ""
    while time.monotonic() < until:
        try:
            with socket.create_connection((host, port), timeout=5.0) as connection:
                connection.sendall(_GREETING)
                # JAX's runtime speaks gRPC, which is HTTP/2; it ends a process that meets anything else.
                if connection.recv(9)[3:4] == bytes([_SETTINGS]):
                    return
            reason = "what answers is no process of JAX"
        except OSError as error:
            reason = error.strerror or str(error)
        time.sleep(0.2)
        interrupts.check()
    raise Refused(
        f"--coordinator: got {host}:{port}, where process 0 did not answer for {seconds:g} s ({reason}); start it there,"
        " choose a port that nothing else uses, and let it through the firewall between the hosts"
    )
