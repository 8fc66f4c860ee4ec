"""Tables in Python: Dataset.csv and Dataset.parquet, in this process and resumed."""

import numpy as np
import pytest

import cachew

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(params=["csv", "parquet"])
def dataset(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CACHEW_INDEX_DIR", str(tmp_path / "index"))
    if request.param == "csv":
        rows = "".join(f'{k},{k / 4},"w,{k}"\n' for k in range(1000))
        (tmp_path / "part-0.csv").write_text("id,score,word\n" + rows)
        return cachew.Dataset.csv("part-*.csv", types={"score": "float32"})
    columns = {
        "id": np.arange(1000),
        "score": (np.arange(1000) / 4).astype("f4"),
        "word": [f"w,{k}" for k in range(1000)],
    }
    pq.write_table(pa.table(columns), "part-0.parquet", row_group_size=96)
    return cachew.Dataset.parquet("part-*.parquet", nulls={"word": ""})


def test_columns_are_components(dataset):
    batches = list(dataset.batch(300))
    assert [len(batch["id"]) for batch in batches] == [300, 300, 300, 100]
    assert np.concatenate([batch["id"] for batch in batches]).tolist() == list(range(1000))
    assert batches[0]["score"].dtype == np.float32 and batches[1]["score"][2] == 75.5
    assert batches[0]["word"][299] == b"w,299"


def test_a_resumed_run_gives_the_rest(dataset):
    ds = dataset.shuffle().filter("id % 3 != 0").batch(64)
    whole = [batch["id"].tolist() for batch in ds.iterator(seed=3)]
    iterator = ds.iterator(seed=3)
    first = [next(iterator)["id"].tolist() for _ in range(4)]
    state = iterator.state_dict()
    again = ds.iterator(seed=3)
    again.load_state_dict(state)
    assert first + [batch["id"].tolist() for batch in again] == whole
    assert sorted(sum(whole, [])) == [k for k in range(1000) if k % 3]
