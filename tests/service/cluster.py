"""A service and its clients as processes of their own, for tests: everything on port 0, in a directory of
its own, started and ended by this program alone.

Nothing sleeps: daemons are waited for by the line that says that they are ready, clients by what they log
(inotify) and by their end (pidfd), all of it up to a deadline that is there to end a hang and says what was
waited for.

No process is given up for being slow: the service's own limits on silence and on starting are long, too,
unless a test is about silence (Cluster(silence_s=...)). What must happen in the middle of a job happens
while its clients are held: Rank(held=N) takes N batches and no more until go()."""

import ctypes
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import oracle  # noqa: E402
from deadlines import HANG_S, PATIENT, PATIENT_S  # noqa: E402
from proxy import Network  # noqa: E402

CACHEW = os.path.abspath(os.environ.get("CACHEW", Path(__file__).resolve().parents[2] / "build" / "cachew"))
PORT_TAKEN_TRIES = 3
ANY_PORT = "127.0.0.1:0"


class Missed(AssertionError):
    """A deadline passed."""


class Deadline:
    def __init__(self, seconds):
        self.seconds, self.at = seconds, time.monotonic() + seconds

    def left(self, what):
        left = self.at - time.monotonic()
        if left <= 0:
            raise Missed(f"after {self.seconds:g} s still waiting for {what}")
        return left


class Growth:
    """Tells when a file in a directory grew or appeared."""

    IN_MODIFY, IN_MOVED_TO, IN_CREATE = 0x2, 0x80, 0x100

    def __init__(self, directory):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if (
            self.fd < 0
            or libc.inotify_add_watch(
                self.fd, os.fsencode(directory), self.IN_MODIFY | self.IN_MOVED_TO | self.IN_CREATE
            )
            < 0
        ):
            raise OSError(ctypes.get_errno(), "inotify")

    def seen(self):
        try:
            os.read(self.fd, 1 << 16)
        except BlockingIOError:
            pass

    def close(self):
        os.close(self.fd)


class Process:
    """One process that this program started. `expected` is told before it is made to end."""

    def __init__(self, cluster, name, words, env=None, stdout=subprocess.PIPE):
        self.cluster, self.name = cluster, name
        self.err_path = cluster.directory / f"{name}.err"
        self.expected_end = False
        self.stopped = False
        self.pipes = []  # closed with it
        with open(self.err_path, "ab") as err:
            self.popen = subprocess.Popen(
                [*cluster.prefix(name), cluster.command, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=err,
                env={**cluster.env, **(env or {})},
                cwd=cluster.directory,
            )
        self.pid = self.popen.pid
        self.pidfd = os.pidfd_open(self.pid)
        cluster.processes.append(self)

    @property
    def running(self):
        return self.popen.poll() is None

    @property
    def code(self):
        return self.popen.poll()

    def has_stopped(self):
        """Since this was asked last."""
        try:
            return os.waitid(os.P_PIDFD, self.pidfd, os.WSTOPPED | os.WNOHANG) is not None
        except ChildProcessError:  # it ended just now
            return False

    def send(self, number):
        if self.running:
            self.popen.send_signal(number)

    def stop(self):
        self.stopped = True
        self.send(signal.SIGSTOP)

    def cont(self):
        self.stopped = False
        self.send(signal.SIGCONT)

    def kill9(self):
        self.expected_end = True
        self.send(signal.SIGKILL)
        self.popen.wait(HANG_S)

    def terminate(self):
        self.expected_end = True
        self.send(signal.SIGTERM)
        if self.stopped:  # then it is the first that it sees
            self.cont()

    def wait(self, seconds=HANG_S):
        """The exit code."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Missed(
                f"after {seconds:g} s still waiting for the end of {self.name} (pid {self.pid}): "
                f"{self.said()}"
            ) from None

    def said(self, n=1500):
        """The end of its stderr."""
        return self.err_path.read_text(errors="replace")[-n:]

    def close(self):
        if self.running:
            self.expected_end = True
            self.popen.kill()
            self.popen.wait(HANG_S)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self.popen.stdout:
            self.popen.stdout.close()
        while self.pipes:
            os.close(self.pipes.pop())


class Daemon(Process):
    """A dispatcher or a worker: it is there when its line is."""

    def __init__(self, cluster, name, words, env=None, wait=True):
        super().__init__(cluster, name, words, env)
        self.ready, self.text = None, b""
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=HANG_S):
        deadline = Deadline(seconds)
        out = self.popen.stdout.fileno()
        while b"\n" not in self.text:
            if select.select(
                [out],
                [],
                [],
                deadline.left(f"the ready line of {self.name} (pid {self.pid}); its stderr: {self.said()}"),
            )[0]:
                more = os.read(out, 4096)
                if not more:
                    raise Missed(f"{self.name} ended with {self.wait()} before it was ready: {self.said()}")
                self.text += more
        self.ready = json.loads(self.text.splitlines()[0])["ready"]
        return self.ready

    @property
    def address(self):
        return self.ready["address"]


@dataclass
class Run:
    """A process of a rank, and where its traces are."""

    process: Process
    log: Path
    dump: Path
    start: tuple
    out: Path
    # a pipe, of the process's: it takes a batch for each turn that is written to it; negative: as it likes
    turns: int = -1
    seen: int = 0  # bytes of the log that were counted
    count: int = 0  # lines
    given: int = 0  # turns

    def give(self, n):
        """It may take so many batches in all; None: as it likes, from now on."""
        if self.turns >= 0 and n is None:
            os.write(self.turns, b"g")
            self.turns = -1
        elif self.turns >= 0 and n > self.given:
            os.write(self.turns, b"." * (n - self.given))
            self.given = n

    def lines(self):
        """How many there are."""
        if self.log.exists() and self.log.stat().st_size > self.seen:
            with open(self.log, "rb") as log:
                log.seek(self.seen)
                new = log.read()
            self.seen += len(new)
            self.count += new.count(b"\n")
        return self.count

    def result(self):
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return (
            json.loads(lines[-1]) if lines and lines[-1].startswith("{") and lines[-1].endswith("}") else None
        )

    def part(self):
        result = None if self.process.code == -signal.SIGKILL else self.result()
        if result and self.process.code != 0:
            result.setdefault("error", {"code": self.process.code})
        text = self.log.read_bytes() if self.log.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]  # a write that kill -9 cut off
        return oracle.Part(
            [oracle.parse_line(line) for line in whole.decode().splitlines()], self.start, result, self.dump
        )


class Rank:
    """`cachew run --service` for one rank: started again from its state as often as it is killed. held:
    after so many batches, of all its processes, it takes no more until go(); None: never. (A build without
    named points is never held.)"""

    def __init__(
        self,
        cluster,
        pipeline,
        job,
        rank=0,
        world_size=1,
        words=(),
        state_every=1,
        with_state=True,
        dump=False,
        start=None,
        service=None,
        held=None,
    ):
        self.cluster, self.pipeline, self.job, self.rank, self.world_size = (
            cluster,
            pipeline,
            job,
            rank,
            world_size,
        )
        self.words, self.state_every, self.with_state, self.with_dump = (
            list(map(str, words)),
            state_every,
            with_state,
            dump,
        )
        self.service = service
        self.held = held
        self.name = f"client-{job}-{cluster.number()}-{rank}"
        self.state = cluster.directory / f"{self.name}.state"
        self.runs = []
        if start is not None:
            shutil.copy(start, self.state)

    @property
    def process(self):
        return self.runs[-1].process

    def start(self, env=None):
        n = len(self.runs)
        base = self.cluster.directory / "logs" / f"{self.name}.{n}"
        log, out, dump = (
            base.with_suffix(f".{n}.log"),
            base.with_suffix(f".{n}.out"),
            base.with_suffix(f".{n}.dump") if self.with_dump else None,
        )
        turns = -1
        if self.held is not None:
            pipe = base.with_suffix(f".{n}.turns")
            os.mkfifo(pipe)
            # what is written before the process opens it stays
            turns = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            env = {**(env or {}), "CACHEW_TURNS": str(pipe)}
        words = [
            "run",
            self.pipeline,
            "--service",
            self.service or self.cluster.address,
            "--job",
            self.job,
            "--rank",
            self.rank,
            "--world-size",
            self.world_size,
            "--log",
            log,
            "--digest",
            "--json",
            "--wait",
            HANG_S,
            *self.words,
        ]
        if self.with_state:
            words += ["--state", self.state, "--state-every", self.state_every]
        if dump:
            words += ["--dump", dump]
        start = oracle.read_state(self.state) if self.with_state else None
        with open(out, "wb") as stdout:
            process = Process(self.cluster, f"{self.name}.{n}", words, env, stdout)
        process.pipes += [turns] * (turns >= 0)
        self.runs.append(Run(process, log, dump, start, out, turns))
        self.hold(self.held)
        return self

    def hold(self, n):
        """Of one that is held: after so many batches instead."""
        self.held = n
        run = self.runs[-1]
        run.give(None if n is None else max(n - self.lines() + run.lines(), 0))
        return self

    def go(self):
        """It is held no more."""
        return self.hold(None)

    def lines(self):
        return sum(run.lines() for run in self.runs)

    def finish(self, seconds=HANG_S, code=0, alone=False):
        """Waits for its end, which must be this; the result. No rank of its job is held any more; with
        `alone`, the other ranks stay held.
        """
        for r in self.cluster.ranks:
            if r.job == self.job and r.runs and (r is self or not alone):
                r.go()
        got = self.process.wait(seconds)
        assert got == code, f"{self.name} ended with {got}, {code} expected: {self.process.said()}"
        return self.runs[-1].result()

    def parts(self):
        return [run.part() for run in self.runs]


class Cluster:
    """A dispatcher, workers and clients. At its end everything that it started is gone."""

    def __init__(
        self,
        command=None,
        keep=None,
        seed=0,
        proxies=False,
        tag="",
        env=None,
        dispatcher_words=(),
        worker_words=(),
        silence_s=PATIENT_S,
    ):
        self.command = command or CACHEW
        # Paths of Unix sockets are short: not below pytest's directories.
        self.directory = Path(tempfile.mkdtemp(prefix=f"cachew-{tag or 'test'}-"))
        self.keep = keep
        (self.directory / "logs").mkdir()
        (self.directory / "run").mkdir(mode=0o700)
        self.env = {
            **os.environ,
            "CACHEW_INDEX_DIR": str(self.directory / "index"),
            "XDG_RUNTIME_DIR": str(self.directory / "run"),
            "TMPDIR": str(self.directory / "run"),
            **PATIENT,
            "CACHEW_SILENCE_S": str(silence_s),
            **(env or {}),
        }
        self.dispatcher_words, self.worker_words = list(dispatcher_words), list(worker_words)
        self.processes, self.helpers, self.ranks, self.workers, self.numbers = [], [], [], {}, 0
        self.dispatcher = None
        self.direct = ANY_PORT  # where the dispatcher listens; once known, the same after a restart
        self.growth = Growth(self.directory / "logs")
        self.network = Network(seed) if proxies else None
        self.links = {}  # name: proxy

    def number(self):
        self.numbers += 1
        return self.numbers

    def prefix(self, name):
        """What the process of this name is started by, as words before the command: it must become the
        command.
        """
        return []

    # ---- roles ----

    @property
    def address(self):
        return self.direct

    def link(self, name, target=None):
        """The proxy of this name, made when it is first asked for; the dispatcher's address where there are
        none.
        """
        if not self.network:
            return None
        if name not in self.links:
            self.links[name] = self.network.proxy(name, target)
        return self.links[name]

    def to_dispatcher(self, who):
        """Where `who` finds the dispatcher: behind a proxy of its own, if there are proxies."""
        link = self.link(f"{who}-dispatcher", self.direct)
        return link.address if link else self.direct

    def worker_listens(self, key):
        return ANY_PORT

    def start_dispatcher(self, *words, env=None, state_dir=True, wait=True):
        given = ["dispatcher", "--listen", self.direct, *self.dispatcher_words, *words]
        if state_dir:
            given += ["--state-dir", self.directory / "state"]
        self.dispatcher = Daemon(self, f"dispatcher-{self.number()}", given, env, wait)
        if wait:
            self.direct = self.dispatcher.address
        return self.dispatcher

    def start_worker(self, key=None, *words, env=None, wait=True):
        """key: who takes the place of an earlier one under this key has its proxies."""
        key = key if key is not None else f"w{len(self.workers)}"
        given = [
            "worker",
            "--dispatcher",
            self.to_dispatcher(key),
            "--listen",
            self.worker_listens(key),
            "--name",
            key,
            *self.worker_words,
            *words,
        ]
        link = self.link(f"client-{key}")
        if link:
            given += ["--advertise", link.address]
        w = Daemon(self, f"{key}-{self.number()}", given, env, wait=False)
        w.link = link
        self.workers[key] = w
        if wait:
            self.worker_ready(key)
        return w

    def worker_ready(self, key):
        w = self.workers[key]
        w.wait_ready()
        if w.link:
            w.link.aim(w.address)
        return w

    def start(self, n_workers=2, **options):
        self.start_dispatcher(**options)
        for _ in range(n_workers):
            self.start_worker(wait=False)
        for key in self.workers:
            self.worker_ready(key)
        return self

    def rank(self, pipeline, job, *, start=None, **options):
        rank = options.get("rank", 0)
        self.ranks.append(
            Rank(
                self,
                pipeline,
                job,
                service=self.to_dispatcher(f"client-{job}-{rank}") if self.network else None,
                start=start,
                **options,
            )
        )
        return self.ranks[-1]

    def run(self, pipeline, job="job", **options):
        """One rank from its beginning to its end."""
        return self.rank(pipeline, job, **options).start()

    # ---- asking ----

    def question(self, verb, words):
        return [
            *self.prefix(verb),
            self.command,
            verb,
            "--service",
            self.direct,
            "--json",
            "--wait",
            str(HANG_S),
            *map(str, words),
        ]

    def asking(self, verb, *words):
        """The same as ask, which nobody waits for: its process."""
        command = subprocess.Popen(
            self.question(verb, words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.env,
            cwd=self.directory,
        )
        self.helpers.append(command)
        return command

    def ask(self, verb, *words, seconds=HANG_S):
        """`cachew jobs|workers --json`: (exit code, value, stderr)."""
        ran = subprocess.run(
            self.question(verb, words),
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
            env=self.env,
            cwd=self.directory,
        )
        lines = ran.stdout.splitlines()
        return ran.returncode, json.loads(lines[-1]) if lines else None, ran.stderr

    def until(self, verb, condition, what, seconds=HANG_S):
        """Asks until the answer is as wanted; each question is a process, so it is not asked all the time."""
        deadline = Deadline(seconds)
        while True:
            code, value, err = self.ask(verb)
            if code == 0 and condition(value):
                return value
            deadline.left(f"{what}; `cachew {verb}` says {value} {err}")

    # ---- waiting ----

    def wait_job(self, rank, condition):
        """Until the dispatcher's answer about a rank's job is as wanted; an end of the rank before that
        fails.
        """

        def there(jobs):
            assert rank.process.running, f"{rank.name} ended with {rank.process.code}: {rank.process.said()}"
            return condition([j for j in jobs if j["name"] == rank.job])

        return self.until("jobs", there, f"{rank.job} to be there")

    def wait(self, condition, what, deadline):
        """Until a condition holds that logs, states or ends of processes make true."""
        if not isinstance(deadline, Deadline):
            deadline = Deadline(deadline)
        while not condition():
            poll = select.poll()
            poll.register(self.growth.fd, select.POLLIN)
            for p in self.processes:
                if p.pidfd >= 0 and p.running:
                    poll.register(p.pidfd, select.POLLIN)
            poll.poll(deadline.left(what() if callable(what) else what) * 1000)
            self.growth.seen()

    def wait_lines(self, rank, n, seconds=HANG_S):
        """Until a rank has logged n batches; an end before that fails."""

        def there():
            if rank.lines() >= n:
                return True
            assert rank.process.running, (
                f"{rank.name} ended with {rank.process.code} after {rank.lines()} batches: "
                f"{rank.process.said()}"
            )
            return False

        self.wait(
            there,
            lambda: f"batch {n} of {rank.name}, which has {rank.lines()}: {rank.process.said()}",
            seconds,
        )

    # ---- ending ----

    def drain(self, seconds=HANG_S):
        """Ends the daemons as a user would. What went wrong on the way, in words."""
        problems = []
        for role in [*self.workers.values(), self.dispatcher]:
            if role is None or not role.running:
                continue
            role.terminate()
        for role in [*self.workers.values(), self.dispatcher]:
            if role is None or not role.expected_end or role.code == -signal.SIGKILL:
                continue
            try:
                code = role.wait(seconds)
            except Missed as missed:
                problems.append(f"{role.name} does not end after SIGTERM: {missed}")
                continue
            if code != 0:
                problems.append(f"{role.name} ended with {code} after SIGTERM, 0 expected: {role.said()}")
        return problems

    def deaths(self):
        """Daemons that ended and were not told to."""
        return [
            f"{p.name} (pid {p.pid}) ended by itself with {p.code}: {p.said()}"
            for p in self.processes
            if isinstance(p, Daemon) and not p.running and not p.expected_end
        ]

    def close(self):
        for p in reversed(self.processes):
            p.close()
        for command in self.helpers:
            command.kill()
            command.wait(HANG_S)
        if self.network:
            self.network.close()
        self.growth.close()
        if self.keep:
            no_files = shutil.ignore_patterns("run", "index", "*.turns")  # sockets, pipes; or made again
            shutil.copytree(self.directory, self.keep, dirs_exist_ok=True, ignore=no_files)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def local_run(command, pipeline, directory, words=(), dump=True):
    """The local run that everything is compared with."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    given = [
        command,
        "run",
        pipeline,
        "--digest",
        "--json",
        "--wait",
        HANG_S,
        "--log",
        directory / "local.log",
        *words,
    ]
    if dump:
        given += ["--dump", directory / "local.dump"]
    ran = subprocess.run([str(w) for w in given], check=False, capture_output=True, text=True, timeout=HANG_S)
    if ran.returncode != 0:
        raise AssertionError(
            f"the local run ended with {ran.returncode}: {ran.stdout[-500:]} {ran.stderr[-1500:]}"
        )
    result = json.loads(ran.stdout.splitlines()[-1])
    return oracle.Local(directory / "local.log", directory / "local.dump" if dump else None, result), result


def socket_reset(sock):
    """Closes with RST."""
    sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
    sock.close()
