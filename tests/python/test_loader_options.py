"""What loaders take beside what is theirs: the options of `Dataset.iterator` and `Dataset.distribute`; and
what they tell of their iterator.
"""

import pytest

import cachew
from cachew import Dataset
from cachew._options import ServiceOptions
from deadlines import HANG_S
from loaders import LOADERS

ds = Dataset.range(96).shuffle().batch(8)

WRONG = {
    "job": "",
    "transport": "pigeon",
    "token": 3,
    "open_timeout_s": "soon",
    "order": "some",
    "guarantee": "never",
    "tls_ca": "",
    "tls_cert": "",
    "tls_key": "",
    "workers": 2,
    "cut": "",
    "local_workers": -1,
}


@pytest.mark.parametrize("loader", LOADERS)
def test_each_option_of_a_service_is_there_and_checked(loader):
    assert set(WRONG) == set(ServiceOptions.__annotations__)
    for name, value in WRONG.items():
        with pytest.raises(cachew.OptionError) as error:
            loader(ds, service="localhost:1", **{name: value})
        assert error.value.attribute == name
        with pytest.raises(cachew.OptionError) as error:
            loader(ds, **{name: value})
        assert error.value.attribute == name
    with pytest.raises(cachew.OptionError, match="sharding"):
        loader(ds, service="localhost:1", sharding="file")
    with pytest.raises(cachew.OptionError, match="a service too"):
        loader(ds, sharding="off")


@pytest.mark.parametrize("loader", LOADERS)
def test_a_loader_over_a_local_service(loader):
    want = [b["value"].tolist() for b in ds.iterator(seed=4)]
    batches = loader(
        ds,
        seed=4,
        service="local",
        transport="tcp",
        job=f"options {loader.__module__}",
        open_timeout_s=HANG_S,
    )
    assert [b["value"].tolist() for b in batches] == want
    assert {link["transport"] for link in batches.profile()["links"]} == {"tcp"}
    batches.close()


@pytest.mark.parametrize("loader", LOADERS)
def test_with_sharding_off_each_rank_of_a_loader_gets_the_whole_epoch(loader):
    want = [b["value"].tolist() for b in ds.iterator(seed=4)]
    for rank in range(2):
        batches = loader(
            ds,
            seed=4,
            service="local",
            job=f"off {loader.__module__}",
            sharding="off",
            rank=rank,
            world_size=2,
        )
        assert len(batches) == len(want) and [b["value"].tolist() for b in batches] == want
        batches.close()


def ahead(ds):
    """A torch loader with a thread of its own, as for a device."""
    made = cachew.torch.loader(ds)
    made._ahead = 2
    return made


@pytest.mark.parametrize("loader", [*LOADERS, ahead])
def test_profile_and_quarantine_are_those_of_the_iterator(loader):
    bad = Dataset.range(96).assign(x="10 // (value - 7)").on_error("skip").batch(8)
    batches = loader(bad)
    with pytest.raises(cachew.UsageError, match="expected a `for`"):
        batches.profile()
    for _ in batches:
        pass
    listed = batches.quarantine()
    assert (
        listed[0]["action"] == "skipped"
        and "division" in listed[0]["reason"]
        and {entry["record"] for entry in listed} == {listed[0]["record"]}
    )
    assert {"bottleneck", "operators"} <= set(batches.profile())
    batches.close()
    with pytest.raises(cachew.UsageError, match="expected a `for`"):
        batches.quarantine()
