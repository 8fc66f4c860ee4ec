"""The examples that train: they learn, and what was interrupted ends as what was not."""

import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import HANG_S

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def train(name, photos, checkpoint, *options):
    """Runs an example; what it says as {first word of a line: the rest}."""
    small = ["--batch-size", "16", "--checkpoint-every", "4"]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, "--photos", photos, "--checkpoint", checkpoint, *small, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("name, library", [("train_torch.py", "torch"), ("train_jax.py", "jax")])
def test_learns_and_resumes_exactly(name, library, examples, tmp_path):
    pytest.importorskip(library)
    photos = examples.parents[1] / "build" / "photos"
    whole = train(name, photos, tmp_path / "whole", "--epochs", "4", "--threads", "2")
    assert float(whole["accuracy"]) > 0.3  # chance is less than 0.1
    stopped = train(name, photos, tmp_path / "parts", "--epochs", "4", "--threads", "1", "--stop-after", "26")
    assert stopped["stopped"] == "at step 26" and "weights" not in stopped
    resumed = train(name, photos, tmp_path / "parts", "--epochs", "4", "--threads", "2", "--resume")
    assert resumed["resumed"] == "at step 24"
    assert resumed["weights"] == whole["weights"] and resumed["accuracy"] == whole["accuracy"]
