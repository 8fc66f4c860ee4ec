"""Dataset.arrow with names of files: the same rows as of the table in memory."""

import pytest

import cachew
from cachew import Dataset

pa = pytest.importorskip("pyarrow")


def test_files_and_tables(tmp_path):
    table = pa.table({"n": [1, None, 3], "s": ["a", "b", None], "v": [[1, 2], [], [3]]})
    paths = [tmp_path / f"{k}.arrow" for k in range(2)]
    for path in paths:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    ds = Dataset.arrow(paths, nulls={"n": 0, "s": "-"})
    assert [(int(e["n"]), bytes(e["s"]), e["v"].tolist()) for e in ds] == [
        (1, b"a", [1, 2]),
        (0, b"b", []),
        (3, b"-", [3]),
    ] * 2
    assert [e["v"].tolist() for e in Dataset.arrow(str(paths[0]), columns=["v"])] == [
        e["v"].tolist() for e in Dataset.arrow(table.select(["v"]))
    ]
    assert Dataset.from_json(ds.to_json()).to_json() == ds.to_json()
    with pytest.raises(TypeError, match="nulls: expected names of files"):
        Dataset.arrow(table, nulls={"n": 0})
    with pytest.raises(cachew.PipelineError, match="at least 1"):
        Dataset.arrow([])
