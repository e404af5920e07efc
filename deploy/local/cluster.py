"""A Baton cluster of real processes on this machine: start, addresses, stop. Standard library only.

    with Cluster(binaries, model, prefill=2, decode=2) as cluster:
        print(cluster.router.addresses["http"])
"""

import functools
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


class ClusterError(RuntimeError):
    """A process did not come up, died, or did not stop in time; the message holds its log's end."""


class Process:
    """One worker or router, starting. `addresses` waits for what it prints: grpc, http, metrics."""

    def __init__(self, binary: pathlib.Path, name: str, flags: list[str], log_dir: pathlib.Path):
        self.name = name
        self.command = [str(binary), *flags]
        self.log_path = log_dir / f"{name}.log"
        try:
            with self.log_path.open("ab") as log:
                self.popen = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=log)
        except OSError as error:
            raise ClusterError(f"{name} cannot be started: {error}") from None

    @functools.cached_property
    def addresses(self) -> dict[str, str]:
        deadline = time.monotonic() + START_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.popen.stdout], [], [], left)[0]:
                raise ClusterError(f"{self.name} said nothing for {START_TIMEOUT_S} s\n{self.log_end()}")
            chunk = os.read(self.popen.stdout.fileno(), 4096)
            if not chunk:
                code = self.popen.wait()
                raise ClusterError(f"{self.name} exited with {code} at start\n{self.log_end()}")
            line += chunk
        return dict(re.findall(r"(\w+)=(\S+)", line.decode().splitlines()[-1]))

    def log_end(self, lines: int = 15) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def alive(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self.popen.stdout.close()

    def terminate(self) -> int:
        """SIGTERM, then the exit code of the drained process."""
        self.drain()
        return self.wait()

    def drain(self) -> None:
        """SIGTERM, once: a second one ends the process where it stands."""
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """The exit code of a process that drains."""
        try:
            code = self.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ClusterError(f"{self.name} did not stop within {STOP_TIMEOUT_S} s of SIGTERM\n"
                               f"{self.log_end()}") from None
        self.popen.stdout.close()
        return code


def free_address() -> str:
    """host:port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % probe.getsockname()[1]


class Cluster:
    """With `ranks`, that many processes make one prefill or decode worker's experts up."""

    def __init__(self, binaries: pathlib.Path, model: pathlib.Path, prefill: int = 1,
                 decode: int = 1, ranks: int = 1, worker_flags: list[str] | None = None,
                 router_flags: list[str] | None = None):
        self.binaries, self.model = binaries, model
        self.worker_flags, self.router_flags = worker_flags or [], router_flags or []
        self.log_dir = pathlib.Path(tempfile.mkdtemp(prefix="baton-"))
        self._started: list[Process] = []  # also those that are in no list below yet, or any more
        self.prefill: list[Process] = []
        self.decode: list[Process] = []
        self.router: Process | None = None
        self._counts, self._ranks = (prefill, decode), ranks

    def __enter__(self) -> "Cluster":
        try:
            prefill, decode = self._counts
            self.prefill = [p for i in range(prefill) for p in self.start_group("prefill", i)]
            self.decode = [p for i in range(decode) for p in self.start_group("decode", i)]
            self.router = self._start_router()
            self.wait_ready()
        except BaseException as error:
            self._give_up(error)
            raise
        return self

    def __exit__(self, exc_type, exc, traceback) -> None:
        if exc_type is None:
            self.stop()
            shutil.rmtree(self.log_dir, ignore_errors=True)
        else:
            self._give_up(exc)

    def _give_up(self, error: BaseException) -> None:
        """No process is left; logs are, if they may say what failed."""
        self.kill()
        written = any(log.stat().st_size for log in self.log_dir.iterdir())
        if written and not isinstance(error, KeyboardInterrupt):
            print(f"the processes' logs are in {self.log_dir}", file=sys.stderr)
        else:
            shutil.rmtree(self.log_dir, ignore_errors=True)

    def start_group(self, role: str, index: int) -> list[Process]:
        """The ranks of a worker. None serves before all have loaded."""
        if self._ranks == 1:
            return [self.start_worker(role, index)]
        shared = [f"--expert-parallel-size={self._ranks}",
                  f"--expert-parallel-address={free_address()}"]
        return [self._start(role, f"{role}-{index}-rank-{rank}", "127.0.0.1:0",
                            [*shared, f"--expert-parallel-rank={rank}"])
                for rank in range(self._ranks)]

    def start_worker(self, role: str, index: int, listen: str = "127.0.0.1:0") -> Process:
        worker = self._start(role, f"{role}-{index}", listen, [])
        _ = worker.addresses  # it is up, or says why not
        return worker

    def restart(self, process: Process) -> Process:
        """The same worker again, where others know it; it may still be starting."""
        address = process.addresses["grpc"]
        process.kill()
        flags = [flag for flag in process.command[1:] if not flag.startswith("--listen=")]
        return self._launch(pathlib.Path(process.command[0]), process.name,
                            [*flags, f"--listen={address}"])

    def _launch(self, binary: pathlib.Path, name: str, flags: list[str]) -> Process:
        self._started.append(Process(binary, name, flags, self.log_dir))
        return self._started[-1]

    def _start(self, role: str, name: str, listen: str, flags: list[str]) -> Process:
        flags = [f"--listen={listen}", "--metrics-listen=127.0.0.1:0", f"--name={name}",
                 f"--model-dir={self.model}", *self.worker_flags, *flags]
        return self._launch(self.binaries / f"baton-{role}", name, flags)

    def _start_router(self) -> Process:
        flags = ["--listen=127.0.0.1:0", "--grpc-listen=127.0.0.1:0",
                 "--metrics-listen=127.0.0.1:0", f"--model-dir={self.model}",
                 "--prefill-workers=" + ",".join(p.addresses["grpc"] for p in self.prefill),
                 "--decode-workers=" + ",".join(p.addresses["grpc"] for p in self.decode),
                 *self.router_flags]
        return self._launch(self.binaries / "baton-router", "router", flags)

    @property
    def processes(self) -> list[Process]:
        return [*self.prefill, *self.decode, *([self.router] if self.router else [])]

    @property
    def url(self) -> str:
        return "http://" + self.router.addresses["http"]

    def wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError) as error:
                if time.monotonic() > deadline or not self.router.alive():
                    raise ClusterError(f"router is not ready: {error}\n"
                                       f"{self.router.log_end()}") from None
            time.sleep(0.05)

    def stop(self) -> None:
        """Drains the router first, then all workers at once; every one must exit with 0."""
        codes = {}
        for group in [self.router] if self.router else [], [*self.decode, *self.prefill]:
            alive = [process for process in group if process.alive()]
            for process in alive:
                process.drain()
            codes |= {process.name: process.wait() for process in alive}
        failed = {name: code for name, code in codes.items() if code != 0}
        if failed:
            raise ClusterError(f"exit codes after SIGTERM: {json.dumps(failed)}")

    def kill(self) -> None:
        for process in self._started:
            if process.alive():
                process.kill()
