"""cache_dir of iterators and loaders: the same batches, from where they were kept."""

import cachew
import pytest

DATA = cachew.Dataset.range(200).assign(square="value * value").cache().shuffle().batch(10)


def digest(**given):
    with DATA.iterator(seed=2, epochs=2, **given) as batches:
        return sum(b.hash() for b in batches) % 2**128, batches.profile().get("cache")


def test_iterators_read_what_others_kept(tmp_path):
    wanted, none = digest()
    assert none is None
    for hits in (0, 400):
        found, facts = digest(cache_dir=tmp_path)
        assert found == wanted
        assert facts["hits"] >= hits
        assert facts["bad"] == 0
    found, facts = digest(cache_dir=tmp_path, cache="off")
    assert (found, facts) == (wanted, None)


@pytest.mark.parametrize(("given", "message"), [({"cache": 3}, "auto, off, or the number of a marker: 0 to 0"), ({"cache": -1}, "the number of a marker, from 0"),
                                                ({"cache_bytes": "lots"}, "bytes, at least 1, as"), ({"cache": "first"}, '"auto", "off"')])
def test_wrong_options(tmp_path, given, message):
    with pytest.raises(cachew.OptionError, match=message):
        DATA.iterator(cache_dir=tmp_path, **given)


def test_a_loader_keeps_what_its_first_epoch_computes(tmp_path):
    torch_loader = pytest.importorskip("cachew.torch").loader
    plain, cached = torch_loader(DATA, seed=2), torch_loader(DATA, seed=2, cache_dir=tmp_path)
    for _ in range(3):
        assert [b["square"].tolist() for b in plain] == [b["square"].tolist() for b in cached]
    assert list(tmp_path.glob("*/meta.json"))


def test_clients_of_a_service_have_no_cache(tmp_path):
    loader = pytest.importorskip("cachew.torch").loader(DATA, service="127.0.0.1:1", cache_dir=tmp_path)
    with pytest.raises(cachew.OptionError, match="workers have caches"):
        next(iter(loader))


def test_a_marker_that_can_not_be_used_is_said(tmp_path, caplog):
    ds = cachew.Dataset.synthetic(20, shape=[6, 6, 3], dtype="uint8").random_flip("data").autocache().batch(5)
    with ds.iterator(cache_dir=tmp_path / "cache") as batches:
        assert sum(len(b["data"]) for b in batches) == 20
    wanted = "autocache (operator 2) is not used: it stands behind an operator that draws anew in each epoch; write it before, or set freeze"
    assert [r.getMessage() for r in caplog.records] == [wanted]


def test_what_was_decided_stands_in_the_profile(tmp_path):
    """Nobody asks for anything of a `cache`; an `autocache` is decided about."""
    ds = cachew.Dataset.range(3000).assign(x="value * 2")
    for marked, decided in ((ds.cache(), False), (ds.autocache(), True)):
        with marked.batch(10).iterator(cache_dir=tmp_path / "cache", epochs=2) as batches:
            values = [v for b in batches for v in b["x"].tolist()]
            cache = batches.profile()["cache"]
        assert values == [2 * v for v in range(3000)] * 2
        assert ("decisions" in cache) == decided
        assert not decided or [c["marker"] for c in cache["choices"]] == [None, 0]
