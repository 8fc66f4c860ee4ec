"""Dispatchers, workers and jobs as processes, for tests. Daemons listen on port 0, are waited for by the
line that says that they are ready, and end with the test. No process is given up because it is slow, unless
a test asks for it."""

import contextlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

from command import cachew, patient
from deadlines import HANG_S, PATIENT
from example_data import CACHEW


class Daemon:
    """`cachew VERB ...`; `ready` is what it says once it serves."""

    def __init__(self, directory, verb, *words, env=None, preexec_fn=None):
        self.err_path = directory / f"{verb}-{len(list(directory.iterdir()))}.err"
        with self.err_path.open("w") as err:
            self.process = subprocess.Popen(
                [CACHEW, verb, *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                env={**os.environ, **PATIENT, **(env or {})},
                preexec_fn=preexec_fn,
            )
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(HANG_S)
            self.process.stdout.close()
            raise AssertionError((verb, words, self.process.returncode, self.err))
        self.ready = json.loads(line)["ready"]

    @property
    def err(self):
        return self.err_path.read_text()

    @property
    def address(self):
        return self.ready["address"]

    def get(self, path):
        """(status, body) of its page."""
        try:
            with urllib.request.urlopen(f"http://{self.ready['http']}{path}", timeout=HANG_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def json(self, path):
        status, body = self.get(path)
        assert status == 200, (status, body)
        return json.loads(body)

    def end(self, how=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            code = self.process.wait(HANG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self.process.stdout.close()
        return code


class Daemons:
    """Those of a test, ended in reverse order: workers before their dispatcher."""

    def __init__(self, directory):
        self.directory, self.all = directory, []

    def start(self, verb, *words, **options):
        daemon = Daemon(self.directory, verb, *words, **options)
        self.all.append(daemon)
        return daemon

    def service(self, *words, workers=1, http=False):
        """A dispatcher and workers with the same words."""
        words = [*words, *(["--http", "127.0.0.1:0"] if http else [])]
        dispatcher = self.start("dispatcher", "--listen", "127.0.0.1:0", *words)
        return dispatcher, [
            self.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M", *words)
            for _ in range(workers)
        ]

    def end(self):
        """All of them, also where one does not end by itself: that is an error then."""
        late = []
        while self.all:
            try:
                self.all.pop().end()
            except subprocess.TimeoutExpired as e:
                late.append(e.cmd)
        assert not late, late


def answer(*words):
    """Returns what a command with --json printed."""
    ran = cachew(*words, "--json")
    assert ran.code == 0, (words, ran.out, ran.err)
    return ran.json


def start_job(pipeline, *words, stdout=subprocess.PIPE):
    """Starts `cachew run`; returns its process."""
    words = patient(["run", pipeline, *words])
    return subprocess.Popen(
        [CACHEW, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, env={**os.environ, **PATIENT}
    )


@contextlib.contextmanager
def endless_job(pipeline, service, name):
    """A job of a service, a Daemon, that runs until the block ends. Gives its process."""
    words = ["--service", service.address, "--job", name, "--epochs", 1000000]
    with start_job(pipeline, *words, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
