#!/usr/bin/env python3
"""The demo, which shows the main job of Cachew. `./demo` installs the packages that this program needs and
runs it (./demo --help).

Builds the command, makes photographs, runs two epochs of examples/pipelines/photos.json in one process, and
again with a service of two workers, one of which is killed after 20 batches. Fails if the two runs deliver
different batches.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import steps

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
OUT = BUILD / "demo"
PIPELINE = "examples/pipelines/photos.json"
CACHEW = str(BUILD / "cachew")
EPOCHS, BATCHES = 2, 48  # 3,000 photographs in batches of 128: 24 batches an epoch
KILL_AFTER = 20  # number of batches after which a worker is killed
HANG_S = 600  # deadline for a batch; only a run that hangs reaches it
N_STEPS = 6


class Failed(Exception):
    pass


def step(number, what):
    return steps.Line(f"[{number}/{N_STEPS}] {what:54}")


def checked(command, line, kept, **options):
    """Runs a command as a step, and writes its output to the file `kept`. If it fails, prints the output and
    ends the demo.
    """
    status = steps.run(command, line, kept, **options)
    if status:
        line.end("FAILED")
        said = kept.read_bytes().splitlines()
        print(
            b"\n".join(text for text in said if steps.part_done(text) is None).decode(errors="replace")[
                -4000:
            ]
        )
        raise Failed(f"{' '.join(map(str, command))}: exit status {status}")


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def compile_command():
    line = step(1, "compile")
    meson = os.environ.get("MESON", "meson")
    checked(["tools/setup.sh", "build"], line, OUT / "setup.txt")
    checked([meson, "compile", "-C", "build"], line, OUT / "compile.txt")
    line.end(f"{line.seconds():.0f} s: build/cachew")


def make_photographs(photos):
    line = step(2, "3,000 photographs, cut out of real ones")
    words = ["--format", "tfrecord", "--count", "3000", "--source", "/usr/share/backgrounds", "--progress"]
    checked([CACHEW, "photos", photos, *words], line, OUT / "photos.txt")
    line.end(f"{line.seconds():.0f} s: {os.path.relpath(photos)}")


def first_batch(files, where):
    line = step(3, "the first batch, as a picture")
    checked([CACHEW, "run", PIPELINE, *files, "--batches", "1", "--save", OUT], line, OUT / "first.txt")
    picture = next(OUT.glob("*.png"))
    line.end(f"{line.seconds():.0f} s: {picture.relative_to(ROOT)}")
    return os.path.relpath(picture, where)


def job(name, *words):
    """Returns the command of a run that writes a log, and a function that returns the part that is done, by
    that log.
    """
    log = OUT / f"{name}.jsonl"
    command = [
        CACHEW,
        "run",
        PIPELINE,
        *words,
        "--epochs",
        str(EPOCHS),
        "--digest",
        "--json",
        "--wait",
        str(HANG_S),
    ]
    return [*command, "--log", log], lambda: lines(log) / BATCHES


def result(name):
    return json.loads((OUT / f"{name}.txt").read_text().splitlines()[-1])


def run_here(files):
    line = step(4, "two epochs in one process")
    command, part = job("local", *files)
    checked(command, line, OUT / "local.txt", poll=part)
    ran = result("local")
    line.end(f"{line.seconds():.0f} s: {ran['elements_per_s']:,.0f} images/s")
    return ran


def run_with_service(files):
    """Repeats the run with a service of two workers, and kills one of them after KILL_AFTER batches."""
    line = step(5, "the same with a service, one worker is killed")
    words = [CACHEW, "up", "--workers", "2", "--listen", "127.0.0.1:0"]
    with open(OUT / "up.txt", "wb") as log:
        up = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
    try:
        ready = json.loads(up.stdout.readline() or "null")
        if not ready:
            line.end("FAILED")
            raise Failed(f"cachew up ended: {(OUT / 'up.txt').read_text()}")
        victim = ready["ready"]["workers"][1]["pid"]
        command, part = job("service", *files, "--service", ready["ready"]["address"], "--job", "demo")

        def part_and_kill():
            nonlocal victim
            if victim and lines(OUT / "service.jsonl") >= KILL_AFTER:
                os.kill(victim, signal.SIGKILL)
                victim = None
            return part()

        checked(command, line, OUT / "service.txt", poll=part_and_kill)
    finally:
        up.terminate()
        up.wait()
    ran = result("service")
    killed = "all batches came" if victim else "a worker was killed, and all batches came"
    line.end(f"{line.seconds():.0f} s: {ran['elements_per_s']:,.0f} images/s; {killed}")
    return ran


def costs(text):
    """Returns a part of the output of `cachew explain`: what an element costs at each operator, and the
    bottleneck.
    """
    found = re.search(r"^an element costs:.*?^bottleneck:.*?$", text, re.MULTILINE | re.DOTALL)
    return found[0] + "\n" if found else text


def explain(files):
    line = step(6, "where the time goes")
    checked([CACHEW, "explain", PIPELINE, *files, "--run", "2"], line, OUT / "explain.txt")
    line.end(f"{line.seconds():.0f} s: {(OUT / 'explain.txt').relative_to(ROOT)}")
    print("\n" + costs((OUT / "explain.txt").read_text()))


def demo(photos, where):
    """Runs all steps. where: the user's working directory, to which printed paths are relative."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    compile_command()
    make_photographs(photos)
    files = ["--set", f"0.files={photos}/photos-*.tfrecord"]
    picture = first_batch(files, where)
    local, service = run_here(files), run_with_service(files)
    if local["digest"] != service["digest"]:
        raise Failed(
            f"the digests differ: {local['digest']} in one process, {service['digest']} with the service"
        )
    explain(files)
    print(f"""The first batch, decoded, cropped and flipped:  {picture}
Rate, in one process:                           {local["elements_per_s"]:,.0f} images/s
Digest of all batches, in order:                {local["digest"]}
The run with the service has the same digest: every batch was delivered once, in the same order.

Try next{"" if where == ROOT else f", in {ROOT}"}:""")
    data = "" if photos == BUILD / "photos" else f" {shlex.join(files)}"  # PIPELINE itself reads build/photos
    for command, what in [
        (f"build/cachew run {PIPELINE}{data} --epochs 2 --digest --seed 1", "another seed, another order"),
        (f"build/cachew explain {PIPELINE}{data} --check", "which changes would make it faster"),
        ("./test", "the tests, in ten minutes; installs the packages they need"),
    ]:
        print(f"  {command:80} # {what}")


def main():
    os.chdir(ROOT)
    parser = argparse.ArgumentParser(
        prog="./demo", usage="./demo [OPTION...]    (./demo --help lists them)", add_help=False
    )
    parser.add_argument("--from", type=Path, default=ROOT, dest="where")
    parser.add_argument("--photos", type=Path, default=BUILD / "photos")
    arguments = parser.parse_args()
    where = arguments.where.resolve()
    try:
        demo((where / arguments.photos).resolve(), where)
    except (Failed, OSError) as error:
        print(f"./demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: run ./demo again to continue", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    steps.end_by_signals()
    sys.exit(main())
