"""The rows of the batches that a run of the command delivers."""

import numpy as np
from command import run


def read_rows(pipeline, tmp_path, *words):
    """By component, the values of all batches in order: numbers and lists as Python has them, bytes."""
    out = tmp_path / "dump"
    run(pipeline, "--dump", out, *words)
    rows: dict[str, list] = {}
    for path in sorted(out.glob("*.npz")):
        with np.load(path) as batch:
            for name in batch.files:
                if name.startswith("__") or name.endswith(".lengths"):
                    continue
                values = rows.setdefault(name, [])
                if f"{name}.lengths" in batch:
                    data, at = batch[name].tobytes(), 0
                    for length in batch[f"{name}.lengths"]:
                        values.append(data[at : at + int(length)])
                        at += int(length)
                else:
                    values += batch[name].tolist()
        path.unlink()
    return rows
