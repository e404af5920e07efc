"""The fault matrix: real processes, one fault each, and what came of it: the outcome for the client,
the time until the side that is left knew, and a recount of pages on every survivor. Prints the table
that stands in FAULTS.md. The short half runs with the suite; BATON_FAULT_MATRIX=all runs all of it."""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.error

import network_namespaces_test as namespaces
import worker_death_test as death
from cluster import Process
from worker_death_test import LONG, SHORT, RoleCluster, complete, find, metrics, wait_until

PROMPTS = [case for case in death.CASES.values() if 500 < len(case.prompt) < 4000][:10]
ALL = os.environ.get("BATON_FAULT_MATRIX") == "all"
# Those of GPUs go with BATON_WORKER_FLAGS=--device=cuda.
TRANSPORTS = os.environ.get("BATON_FAULT_TRANSPORTS", "shm,grpc").split(",")
DEAD_S, SILENT_S = 1.0, 5.0  # until the other side knows
SLACK_S = 2.0  # of a loaded machine with few cores
ROWS: list[tuple[str, str, str, str]] = []

long_part = unittest.skipUnless(ALL, "BATON_FAULT_MATRIX=all runs it")


def tearDownModule():
    widths = [max(len(row[i]) for row in [*ROWS, ("fault", "outcome", "known after", "pages")])
              for i in range(4)]
    for row in [("fault", "outcome", "known after", "pages"), tuple("-" * w for w in widths), *ROWS]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


def failures(process: Process) -> float:
    """Hand-offs and requests that ended badly, as the process counts them."""
    return sum(value for name, value in metrics(process).items()
               if name.startswith(("baton_kv_transfers_total", "baton_requests_total"))
               and '"ok"' not in name)


def is_empty(process: Process) -> bool:
    m = metrics(process)
    idle = m['baton_kv_pages{owner="free"}'] + m.get('baton_kv_pages{owner="prefix"}', 0)
    return (idle == m["baton_kv_pages_total"] and m["baton_kv_pages_unaccounted"] == 0
            and m["baton_requests_running"] == m["baton_requests_waiting"] == 0
            and m.get('baton_state_slots{state="used"}', 0) == 0)


def enter(namespace: int) -> None:
    """Moves the calling thread to a network namespace, given as a file descriptor."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def plan(text: str) -> list[str]:
    """Flags of a worker that commits these faults."""
    file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
    with file:
        file.write(text)
    return ["--allow-faults", f"--fault-plan={file.name}"]


class DisturbedCluster(RoleCluster):
    """The first worker of a role has flags of its own."""

    def __init__(self, first: dict[str, list[str]], **arguments):
        super().__init__(**arguments)
        self.first = first

    def start_worker(self, role, index, listen="127.0.0.1:0"):
        usual = self.role_flags[role]
        if index == 0:
            self.role_flags[role] = [*usual, *self.first.get(role, [])]
        try:
            return super().start_worker(role, index, listen)
        finally:
            self.role_flags[role] = usual


class FaultMatrix(death.WorkerDeath):
    """Takes the helpers of worker_death_test, not its tests: see load_tests."""

    def known(self, process: Process, since: float, within: float) -> float:
        """Seconds until `process` has counted a failure."""
        wait_until(lambda: failures(process) > 0, f"{process.name} knows")
        seconds = time.monotonic() - since
        self.assertLess(seconds, within + SLACK_S)
        return seconds

    def row(self, fault: str, outcome: str, known: float | None, workers) -> None:
        survivors = [p for p in workers if p.alive()]
        for process in survivors:
            wait_until(lambda process=process: is_empty(process),
                       f"{process.name} is empty: {metrics(process)}")
        ROWS.append((fault, outcome, "-" if known is None else f"{known:.2f} s",
                     f"exact on {len(survivors)}"))

    def error_of(self, ask) -> str:
        with self.assertRaises(urllib.error.HTTPError) as error:
            ask()
        return f"{error.exception.code} {error.exception.read().decode()}"

    # --- processes

    def test_kill_9_of_a_prefill_worker(self):
        with RoleCluster(prefill=2, decode=1) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            victim, decode = self.landing(cluster)
            victim.kill()
            known = self.known(decode, time.monotonic(), DEAD_S)
            self.assert_answer(answer.result(), LONG)
            self.row("kill -9 of a prefill worker while it sends", "right answer, by another",
                     known, cluster.workers())

    def test_kill_9_of_a_decode_worker(self):
        with RoleCluster(prefill=1, decode=2) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            prefill, victim = self.landing(cluster)
            victim.kill()
            known = self.known(prefill, time.monotonic(), DEAD_S)
            self.assert_answer(answer.result(), LONG)
            self.row("kill -9 of a decode worker while pages land", "right answer, by another",
                     known, cluster.workers())

    def stopped(self, role: str) -> None:
        with RoleCluster(prefill=2, decode=2) as cluster:
            answer = self.pool.submit(complete, cluster.url, LONG)
            prefill, decode = self.landing(cluster)
            victim, other = (prefill, decode) if role == "prefill" else (decode, prefill)
            victim.popen.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            try:
                known = self.known(other, stopped, SILENT_S)
                time.sleep(max(0.0, 10 - (time.monotonic() - stopped)))
            finally:
                victim.popen.send_signal(signal.SIGCONT)
            self.assert_answer(answer.result(), LONG)
            self.row(f"SIGSTOP of a {role} worker for 10 s", "right answer, by another", known,
                     cluster.workers())

    def test_sigstop_of_a_prefill_worker(self):
        self.stopped("prefill")

    @long_part
    def test_sigstop_of_a_decode_worker(self):
        self.stopped("decode")

    @long_part
    def test_restart_with_another_configuration(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            self.assert_answer(complete(cluster.url, SHORT), SHORT)
            address = cluster.prefill[0].addresses["grpc"]
            cluster.prefill[0].kill()
            cluster.role_flags["prefill"] = ["--index-topk=64"]
            cluster.prefill[0] = cluster.start_worker("prefill", 0, listen=address)
            # Until the router has seen it, the error is that nobody is there. Asked all the same,
            # the decode worker names the field: PeerTest of the integration tests.
            wait_until(lambda: "cannot work with" in self.error_of(lambda: complete(cluster.url, SHORT)),
                       "the router's refusal")
            cluster.prefill[0].kill()
            cluster.role_flags["prefill"] = []
            cluster.prefill[0] = cluster.start_worker("prefill", 0, listen=address)
            def answered():
                try:
                    return complete(cluster.url, SHORT)
                except urllib.error.HTTPError:
                    return None
            self.assert_answer(wait_until(answered, "it is back as it was"), SHORT)
            self.row("restart on the same port with another index_topk",
                     "503 until it is put right; never asked", None, cluster.workers())

    # --- clients

    @long_part
    def test_deadline_shorter_than_the_prompt(self):
        with RoleCluster(prefill=1, decode=1, router_flags=["--request-timeout=1s"]) as cluster:
            started = time.monotonic()
            error = self.error_of(lambda: complete(cluster.url, LONG))
            known = time.monotonic() - started
            self.assertTrue(error.startswith("504"), error)
            self.assertLess(known, 1 + SLACK_S)
            self.row("deadline of 1 s, shorter than the prompt", "504 in time", known - 1,
                     cluster.workers())

    def test_client_gone(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            stream = self.stream(cluster, LONG, 100)
            _, decode = self.landing(cluster)
            stream.close()
            known = self.known(decode, time.monotonic(), DEAD_S)
            self.row("client gone while pages land", "cancelled everywhere", known,
                     cluster.workers())

    @long_part
    def test_decode_worker_full(self):
        flags = ["--slots=1", "--queue-timeout=2s"]
        with RoleCluster(prefill=1, decode=1, decode_flags=flags) as cluster:
            hog = self.stream(cluster, SHORT, 12000)
            next(hog.events())
            started = time.monotonic()
            error = self.error_of(lambda: complete(cluster.url, SHORT))
            known = time.monotonic() - started
            self.assertTrue(error.startswith(("429", "503")), error)
            hog.close()
            self.assert_answer(complete(cluster.url, SHORT), SHORT)
            self.row("decode worker full, queue-timeout 2 s", f"{error[:3]}; serves again when not",
                     known - 2, cluster.workers())

    @long_part
    def test_slow_reader(self):
        with RoleCluster(prefill=1, decode=1) as cluster:
            slow = self.stream(cluster, SHORT, 2000)  # and nothing is read
            find(cluster.decode, lambda p: metrics(p)["baton_requests_running"] > 0, "it runs")
            for _ in range(3):
                self.assert_answer(complete(cluster.url, SHORT), SHORT)
            slow.close()
            self.row("client that reads nothing", "others are answered meanwhile", None,
                     cluster.workers())

    # --- what is done to frames and messages

    def disturbed(self, fault: str, outcome: str, prefill="", decode="", attempts=1,
                  case=LONG, transports=TRANSPORTS) -> None:
        """Answers are right although a worker commits these faults."""
        for transport in transports:
            # Both ends: those of GPUs are on nobody's list unless they are asked for.
            over = [f"--transports={transport}"]
            with RoleCluster(prefill=1, decode=1,
                             prefill_flags=over + (plan(prefill) if prefill else []),
                             decode_flags=over + (plan(decode) if decode else [])) as cluster:
                completion = complete(cluster.url, case)
                self.assert_answer(completion, case)
                self.assertEqual(completion["baton"]["attempts"], attempts)
                self.row(f"{fault} ({transport})", outcome, None, cluster.workers())

    def test_duplicate_late_and_reordered_frames(self):
        self.disturbed("frames twice, late and reordered", "right answer, first attempt",
                       "frames: {duplicate: 0.4, delay: 0.2, reorder: 0.3, max-duration: 50ms}")

    def test_corrupt_frames(self):
        self.disturbed("one frame in five corrupt", "right answer, first attempt",
                       "frames: {corrupt: 0.2}")

    @long_part
    def test_slow_receiver(self):
        self.disturbed("decode worker takes 50 ms a frame", "right answer, first attempt",
                       decode="frames: {delay: 1, max-duration: 50ms}", transports=["grpc"])

    @long_part
    def test_control_message_late(self):
        self.disturbed("Grant and Finished 1 s late", "right answer, first attempt",
                       "control: {at: [{message: finished, fault: delay, duration: 1s}]}",
                       "control: {at: [{message: grant, fault: delay, duration: 1s}]}",
                       transports=["shm"])

    def broken(self, fault: str, outcome: str, within: float, flags=(), **plans: str) -> None:
        """Something fails once at the first worker of a role, and the request is answered in another
        attempt. `known` counts from the start of the request."""
        (role, text), = plans.items()
        with DisturbedCluster({role: plan(text)}, prefill=2, decode=1,
                              prefill_flags=flags) as cluster:
            process = getattr(cluster, role)[0]
            known = None
            for case in PROMPTS:  # until that worker is asked; none finds another's prefix
                started = time.monotonic()
                answer = self.pool.submit(complete, cluster.url, case)
                while known is None and not answer.done():
                    known = time.monotonic() - started if failures(process) > 0 else None
                self.assert_answer(answer.result(), case)
                if known is not None:
                    break
            self.assertIsNotNone(known, "the fault did not happen")
            self.assertLess(known, within + SLACK_S)
            self.row(fault, outcome, known, cluster.workers())

    @long_part
    def test_connection_cut(self):
        self.broken("connection of frames cut", "right answer, second attempt", DEAD_S,
                    prefill="frames: {at: [{n: 2, fault: cut}]}")

    @long_part
    def test_frame_lost(self):
        self.broken("a frame lost, no answer", "right answer, second attempt", SILENT_S,
                    prefill="frames: {at: [{n: 2, fault: drop}]}")

    @long_part
    def test_frame_always_corrupt(self):
        faults = ", ".join(f"{{n: {n}, fault: corrupt}}" for n in range(1, 30))
        self.broken("a frame corrupt four times", "DATA_LOSS; right answer, second attempt", DEAD_S,
                    prefill=f"frames: {{at: [{faults}]}}")

    @long_part
    def test_frame_rejected(self):
        self.broken("a frame rejected by the decode worker", "right answer, second attempt", DEAD_S,
                    decode="frames: {at: [{n: 2, fault: fail}]}")

    @long_part
    def test_control_stream_cut(self):
        self.broken("control stream cut at Finished", "right answer, second attempt", DEAD_S,
                    prefill="control: {at: [{message: finished, fault: cut}]}")

    @long_part
    def test_grant_lost(self):
        self.broken("Grant lost, grant-timeout 3 s", "right answer, second attempt", 3,
                    flags=["--grant-timeout=3s"],
                    decode="control: {at: [{message: grant, fault: drop}]}")

    @long_part
    def test_grant_twice(self):
        self.broken("Grant twice", "right answer, second attempt", DEAD_S,
                    decode="control: {at: [{message: grant, fault: duplicate}]}")

    def test_a_plan_is_refused_unless_allowed_and_unknown_keys_are_named(self):
        for flags, message in ((plan("frames: {drop: 1}")[1:], "--allow-faults"),
                               (plan("frames: {drpo: 1}"), 'unknown key "drpo" in frames')):
            with self.assertRaisesRegex(Exception, message):
                with RoleCluster(prefill=1, decode=1, prefill_flags=flags):
                    pass


@unittest.skipUnless(ALL and namespaces.can_make_namespaces() and shutil.which("nft"),
                     "BATON_FAULT_MATRIX=all, root, `ip netns` and nft")
class Partitions(FaultMatrix):
    """Router, a decode and two prefill workers in namespaces of their own; packets are dropped at
    one prefill worker while it sends."""

    PREFILL = {"10.77.0.3": "prefill-0", "10.77.0.4": "prefill-1"}
    DECODE, ROUTER = "10.77.0.5", "10.77.0.2"

    def setUp(self):
        self.network = namespaces.Network()
        self.addCleanup(self.network.remove)
        # This thread, and those it makes from now on, sit at the bridge.
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.addCleanup(os.close, home)
        self.addCleanup(enter, home)
        hub = os.open(f"/run/netns/{self.network.bridge}", os.O_RDONLY)
        enter(hub)
        os.close(hub)
        super().setUp()
        self.logs = pathlib.Path(tempfile.mkdtemp(prefix="baton-"))
        self.prefill = [self.start(name, address, "prefill", 7001)
                        for address, name in self.PREFILL.items()]
        self.decode = [self.start("decode", self.DECODE, "decode", 7002)]
        self.run_in(
            self.network.add("router", self.ROUTER), "router", "router",
            f"--listen={self.ROUTER}:8000", f"--metrics-listen={self.ROUTER}:9000",
            "--grpc-listen=127.0.0.1:0",
            "--prefill-workers=" + ",".join(f"{a}:7001" for a in self.PREFILL),
            f"--decode-workers={self.DECODE}:7002")
        self.url = f"http://{self.ROUTER}:8000"
        wait_until(self.ready, "the router is ready")

    def ready(self) -> bool:
        try:
            self.assert_answer(complete(self.url, SHORT), SHORT)
            return True
        except OSError:
            return False

    def start(self, name: str, address: str, role: str, port: int) -> Process:
        namespace = self.network.add(name, address)
        process = self.run_in(namespace, role, name, f"--listen={address}:{port}",
                              f"--metrics-listen={address}:9001", *death.COMMON)
        process.namespace = namespace
        return process

    def run_in(self, namespace: str, role: str, name: str, *flags: str) -> Process:
        process = Process(pathlib.Path(shutil.which("ip")), name,
                          ["netns", "exec", namespace, str(namespaces.BINARIES / f"baton-{role}"),
                           f"--model-dir={namespaces.MODEL}", *flags], self.logs)
        self.addCleanup(process.kill)
        process.addresses  # it listens
        return process

    def partition(self, fault: str, *matches: str) -> None:
        """Packets that match are dropped at the worker that sends, both ways, for 10 s."""
        answer = self.pool.submit(complete, self.url, LONG)
        victim, decode = self.landing(self)
        rules = "".join(f"add rule inet faults {hook} {match} drop\n"
                        for match in matches for hook in ("incoming", "outgoing"))
        self.nft(victim, "add table inet faults\n"
                 "add chain inet faults incoming { type filter hook input priority 0; }\n"
                 "add chain inet faults outgoing { type filter hook output priority 0; }\n" + rules)
        cut = time.monotonic()
        known = self.known(decode, cut, SILENT_S)
        time.sleep(max(0.0, 10 - (time.monotonic() - cut)))
        self.nft(victim, "delete table inet faults")
        self.assert_answer(answer.result(), LONG)
        self.row(fault, "right answer, by another", known, [*self.prefill, *self.decode])

    def nft(self, process: Process, commands: str) -> None:
        subprocess.run(["ip", "netns", "exec", process.namespace, "nft", "-f", "-"], input=commands,
                       text=True, check=True)

    def test_half_open(self):
        self.partition("half-open connections: every packet lost",
                       "tcp dport { 7001, 7002 }", "tcp sport { 7001, 7002 }")

    def test_control_only(self):
        self.partition("control connections partitioned, data not",
                       "tcp dport 7001", "tcp sport 7001")

    def test_data_only(self):
        self.partition("data connections partitioned, control not",
                       "tcp dport 7002", "tcp sport 7002")


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    for case, inherited in ((FaultMatrix, death.WorkerDeath), (Partitions, FaultMatrix)):
        suite.addTests(case(name) for name in loader.getTestCaseNames(case)
                       if name not in dir(inherited))
    return suite


if __name__ == "__main__":
    unittest.main()
