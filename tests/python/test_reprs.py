"""What reprs of iterators and loaders tell, loaders as context managers, and sizes for people."""

import re
import threading

import pytest
from deadlines import wait_for

import cachew
from cachew import Dataset

DS = Dataset.range(20).batch(4)


def test_an_iterator_tells_where_it_is():
    with DS.iterator(epochs=2) as it:
        assert repr(it) == "<DatasetIterator of Dataset.range(20).batch(4): epoch 0, next batch 0>"
        next(it), next(it)
        assert repr(it).endswith(": epoch 0, next batch 2>")
        for _ in range(4):
            next(it)
        assert repr(it).endswith(": epoch 1, next batch 1>")
    assert repr(it).endswith(": closed>")
    long = Dataset.range(10**9).filter("value > 17 and value != 3").assign(other="value * 2 + 1").batch(4)
    with long.iterator() as it:
        assert repr(it) == "<DatasetIterator of Dataset.range(...) ... batch(...): epoch 0, next batch 0>"


def test_an_iterator_in_use():
    def waits():
        yield {"value": 1}
        import time

        time.sleep(1e6)

    with Dataset.iterable(waits, outputs={"value": "int64"}).batch(2).iterator() as it:

        def take():
            with pytest.raises(cachew.UsageError):
                next(it)

        thread = threading.Thread(target=take)
        thread.start()
        wait_for(lambda: "in use by another thread" in repr(it))
        it.close()
        thread.join()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_loader_tells_where_it_is_and_ends_with_its_block(library):
    pytest.importorskip(library)
    loader = pytest.importorskip(f"cachew.{library}").loader
    before = threading.enumerate()  # loaders of other tests may be among them
    with loader(DS) as train:
        name = type(train).__name__
        assert repr(train) == f"<{name} of Dataset.range(20).batch(4): before epoch 0>"
        epoch = iter(train)
        next(epoch), next(epoch)
        assert repr(train) == f"<{name} of Dataset.range(20).batch(4): epoch 0, next batch 2>"
        assert repr(epoch) == f"<one epoch of {train!r}>"
        assert len(list(epoch)) == 3
        assert repr(train).endswith(": before epoch 1>")
    assert not [t for t in threading.enumerate() if t.name == "cachew-loader" and t not in before]
    assert len(list(train)) == 5  # the next loop begins the next epoch


def test_sizes_are_written_for_people():
    from cachew._values import shown_bytes

    sizes = (0, 999, 1000, 65852, 99950, 446.4e6, 999.6e6, 12638255104, 1e13)
    shown = ["0 bytes", "999 bytes", "1.0 kB", "65.9 kB", "100 kB", "446 MB", "1.0 GB", "12.6 GB", "10.0 TB"]
    assert [shown_bytes(size) for size in sizes] == shown
    batch = Dataset.arrays({"image": [b"x" * 70_000]}).peek()
    assert repr(batch) == "<Batch 0 of epoch 0: image: 70.0 kB>"
    memory = re.search(r"memory budget (.*)", DS.explain())[1]
    assert re.fullmatch(r"\d+(\.\d)? [MGT]B", memory)
