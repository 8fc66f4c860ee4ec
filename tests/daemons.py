"""Dispatchers and workers as processes, for tests: started on port 0, waited for by the line that says that they are ready, ended with the test.
And what tests do with them: ask, run jobs, wait."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

from example_data import CACHEW

TIMEOUT_S = 120


class Daemon:
    """`cachew VERB ...`; `ready` is what it says once it serves."""

    def __init__(self, directory, verb, *words, env=None, preexec_fn=None):
        self.err_path = directory / f"{verb}-{len(list(directory.iterdir()))}.err"
        with self.err_path.open("w") as err:
            self.process = subprocess.Popen([CACHEW, verb, *map(str, words)], stdout=subprocess.PIPE, stderr=err, text=True, env={**os.environ, **(env or {})},
                                            preexec_fn=preexec_fn)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(TIMEOUT_S)
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
            with urllib.request.urlopen(f"http://{self.ready['http']}{path}", timeout=TIMEOUT_S) as answer:
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
            code = self.process.wait(TIMEOUT_S)
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
        return dispatcher, [self.start("worker", "--dispatcher", dispatcher.address, "--memory", "256M", *words) for _ in range(workers)]

    def end(self):
        """All of them, also where one does not end by itself: that is an error then."""
        late = []
        while self.all:
            try:
                self.all.pop().end()
            except subprocess.TimeoutExpired as e:
                late.append(e.cmd)
        assert not late, late


def said(*words):
    """What a command with --json printed."""
    ran = subprocess.run([CACHEW, *map(str, words)], check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ran.returncode == 0, (words, ran)
    return json.loads(ran.stdout)


def run(pipeline, *words):
    """A job, under way: digest() waits for its end."""
    return subprocess.Popen([CACHEW, "run", pipeline, "--digest", "--json", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def digest(process):
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])["digest"]


def wait(what):
    """Asked again and again until it is true: the daemons' own limits end what does not become so."""
    while not (found := what()):
        pass
    return found
