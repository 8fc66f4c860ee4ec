"""Where memory can't be shared between worker and client, batches are copied, and somebody says why. Where
it is, it is free when its client is gone.

CACHEW names the command (default build/cachew)."""

import ctypes
import json
import os
import resource
import struct
import subprocess

import pytest
from command import SANITIZED
from deadlines import HANG_S, started, wait_for
from example_data import CACHEW

MIB = 1 << 20


@pytest.fixture
def pipeline(tmp_path):
    """200 batches of 128 KiB."""
    path = tmp_path / "pipeline.json"
    path.write_text(
        json.dumps(
            {
                "cachew": 1,
                "pipeline": [
                    {"op": "synthetic", "count": 400, "shape": [64, 1024], "dtype": "uint8"},
                    {"op": "shuffle"},
                    {"op": "batch", "size": 2},
                ],
            }
        )
    )
    return path


def run(pipeline, *words, preexec_fn=None):
    """(result, stderr)"""
    ran = subprocess.run(
        [CACHEW, "run", str(pipeline), "--digest", "--json", "--wait", str(HANG_S), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        preexec_fn=preexec_fn,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


def service(daemons, *words, preexec_fn=None):
    """A dispatcher, and a worker that starts under a limit."""
    dispatcher = daemons.start("dispatcher", "--listen", "127.0.0.1:0")
    return dispatcher.address, daemons.start(
        "worker",
        "--dispatcher",
        dispatcher.address,
        "--memory",
        "64M",
        "--http",
        "127.0.0.1:0",
        *words,
        preexec_fn=preexec_fn,
    )


# ---- limits ----


def small_files():
    """Files, memfds among them, of at most 8 MiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * MIB, 8 * MIB))


def small_address_space():
    """Enough for the program; not for a gigabyte that a worker lends."""
    resource.setrlimit(resource.RLIMIT_AS, (700 * MIB, 700 * MIB))


def no_memfd_create():
    """A seccomp profile that refuses memfd_create."""
    number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
    filter_ = b"".join(
        struct.pack("HBBI", *line)
        for line in (
            (0x20, 0, 0, 0),  # the number of the system call
            (0x15, 0, 1, number),  # if it is this one
            (0x06, 0, 0, 0x00050000 | 1),  # EPERM
            (0x06, 0, 0, 0x7FFF0000),
        )
    )  # else it is allowed
    keep = ctypes.create_string_buffer(filter_, len(filter_))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(keep)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


@pytest.mark.large
@pytest.mark.parametrize(
    ("limit", "why"),
    [
        (small_files, "files of this size are not allowed"),
        (no_memfd_create, "memfd_create is not allowed here"),
    ],
)
def test_a_worker_without_memfds_sends_copies_and_says_why(daemons, pipeline, limit, why):
    local, _ = run(pipeline)
    address, worker = service(daemons, preexec_fn=limit)
    for job in range(3):
        result, _ = run(pipeline, "--service", address, "--job", f"job{job}")
        assert result["digest"] == local["digest"]
        assert [link["transport"] for link in result["links"]] == ["unix"]
    assert worker.err.count("clients on this host get batches as copies") == 1 and why in worker.err


@pytest.mark.parametrize("limit", [small_files, no_memfd_create])
def test_a_run_without_memfds(pipeline, limit):
    assert run(pipeline, preexec_fn=limit)[0]["digest"] == run(pipeline)[0]["digest"]


@pytest.mark.skipif(SANITIZED, reason="AddressSanitizer needs address space")
def test_a_client_that_can_not_map_what_is_lent_gets_copies_and_says_why(daemons, pipeline):
    local, _ = run(pipeline)
    address, worker = service(daemons)
    result, err = run(
        pipeline,
        "--service",
        address,
        "--job",
        "small",
        "--transport",
        "auto",
        preexec_fn=small_address_space,
    )
    assert result["digest"] == local["digest"]
    assert [link["transport"] for link in result["links"]] == ["unix"]
    assert (
        "bytes of the memory (a limit of the address space, ulimit -v, may be too small)"
        in result["links"][0]["note"]
    )
    assert "requests copies of its batches" in worker.err
    assert err.count("can't map ") == 1
    result, err = run(pipeline, "--service", address, "--job", "large")  # who can still shares
    assert (
        result["digest"] == local["digest"]
        and [link["transport"] for link in result["links"]] == ["shm"]
        and not err
    )


# ---- who is gone ----


def test_what_a_killed_client_was_lent_is_free(daemons, pipeline, tmp_path):
    """It had batches, and was held: they are the worker's again when its process is gone, and not before."""
    address, worker = service(daemons, "--drain-timeout", "1")
    turns = tmp_path / "turns"
    os.mkfifo(turns)
    pipe = os.open(turns, os.O_RDWR)
    os.write(pipe, b"...")  # it takes three batches of 200
    words = [CACHEW, "run", str(pipeline), "--service", address, "--job", "killed", "--wait", str(HANG_S)]
    with started(words, env={**os.environ, "CACHEW_TURNS": str(turns)}) as client:
        while worker.json("/api/v1/status")["batches_out"] == 0:
            assert client.poll() is None
    os.close(pipe)
    # it is told by the kernel, not by a timer
    wait_for(lambda: worker.json("/api/v1/status")["batches_out"] == 0)
    assert run(pipeline, "--service", address, "--job", "next")[0]["digest"] == run(pipeline)[0]["digest"]
