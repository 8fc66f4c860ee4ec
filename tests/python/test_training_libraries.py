"""Loaders in training libraries: Hugging Face's Trainer, Accelerate, Lightning, Keras, and JAX in several
processes. The tests train a model of one number, and record the elements that the model gets.
"""

import importlib.util
import json
import socket
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch")
import cachew.torch  # noqa: E402
from cachew import Dataset  # noqa: E402

from deadlines import HANG_S  # noqa: E402

DS = Dataset.range(60).assign(x="float32(value) / 60").shuffle()
BATCHED = DS.batch(4)


def loader(ds=BATCHED, **options):
    return cachew.torch.loader(ds, seed=1, **options)


def epochs(n, ds=BATCHED, **options):
    """The batches of the first n epochs, as lists of elements."""
    return [batch["value"].tolist() for batch in ds.iterator(seed=1, epochs=n, **options)]


class Model(torch.nn.Module):
    """Predicts x by one number, and records the elements of each batch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def forward(self, value, x):
        self.seen.append(value.tolist())
        return {"loss": ((self.weight - x) ** 2).mean()}


# ---- Hugging Face's Trainer ----


def trainer_of(directory, model, train, **arguments):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return train

    defaults = {
        "num_train_epochs": 3,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    arguments = transformers.TrainingArguments(str(directory), **{**defaults, **arguments})
    return Trainer(model, arguments)


def test_trainer_trains_on_all_epochs(tmp_path):
    model = Model()
    trainer = trainer_of(tmp_path, model, loader())
    trainer.train()
    assert model.seen == epochs(3) and trainer.num_examples(loader()) == 60


@pytest.mark.parametrize("stop", [4, 15, 22])
def test_trainer_resumes_in_the_middle_of_an_epoch(tmp_path, stop):
    first, second = Model(), Model()
    trainer_of(tmp_path, first, loader(), save_strategy="steps", save_steps=stop, max_steps=stop).train()
    trainer_of(tmp_path, second, loader()).train(resume_from_checkpoint=f"{tmp_path}/checkpoint-{stop}")
    assert first.seen + second.seen == epochs(3)


def test_trainer_resumes_where_the_number_of_batches_is_not_known(tmp_path):
    first, second, ds = Model(), Model(), DS.filter("value >= 0").batch(4)
    trainer_of(tmp_path, first, loader(ds), save_strategy="steps", save_steps=4, max_steps=4).train()
    trainer_of(tmp_path, second, loader(ds), max_steps=45).train(
        resume_from_checkpoint=f"{tmp_path}/checkpoint-4"
    )
    assert first.seen + second.seen[: 15 - 4] == epochs(1)


def test_trainer_resumes_with_gradient_accumulation(tmp_path):
    first, second = Model(), Model()
    options = {"gradient_accumulation_steps": 2}
    trainer_of(
        tmp_path, first, loader(), save_strategy="steps", save_steps=11, max_steps=11, **options
    ).train()
    trainer_of(tmp_path, second, loader(), **options).train(
        resume_from_checkpoint=f"{tmp_path}/checkpoint-11"
    )
    assert first.seen + second.seen == epochs(3)


def test_trainer_evaluates(tmp_path):
    model = Model()
    trainer = trainer_of(tmp_path, model, loader(), label_names=["x"])
    trainer.get_eval_dataloader = lambda eval_dataset=None: loader(DS.take(10).batch(4))
    found = trainer.evaluate()
    assert found["eval_loss"] > 0 and [len(b) for b in model.seen] == [4, 4, 2]


# ---- Accelerate ----


def test_accelerate_saves_the_position(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    seen = []
    accelerator = accelerate.Accelerator(cpu=True)
    model, train = accelerator.prepare(Model(), loader())
    for i, batch in enumerate(train):
        model(**batch)
        if i == 6:
            break
    accelerator.save_state(tmp_path)
    seen = model.seen

    accelerator = accelerate.Accelerator(cpu=True)
    model, train = accelerator.prepare(Model(), loader())
    accelerator.load_state(tmp_path)
    for _ in range(2):
        for batch in train:
            model(**batch)
    assert seen + model.seen == epochs(2)


def test_accelerate_resumes_with_another_number_of_ranks(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    ranks = [loader(rank=rank, world_size=3) for rank in range(3)]
    train = accelerator.prepare(ranks[0])
    seen = []
    for _, *round in zip(range(2), *ranks):
        seen += [x for batch in round for x in batch["value"].tolist()]
    accelerator.save_state(tmp_path)
    assert train is ranks[0]

    for rank in range(2):
        accelerator = accelerate.Accelerator(cpu=True)
        train = accelerator.prepare(loader(rank=rank, world_size=2))
        accelerator.load_state(tmp_path)
        for batch in train:
            seen += [] if train.is_padding else batch["value"].tolist()
    assert sorted(seen) == list(range(60))


def test_accelerate_skips_first_batches():
    accelerate = pytest.importorskip("accelerate")
    rest = accelerate.skip_first_batches(accelerate.Accelerator(cpu=True).prepare(loader()), 5)
    assert [batch["value"].tolist() for batch in rest] == epochs(1)[5:]


# ---- Lightning ----


def lightning_model():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, i):
            return self.model(**batch)["loss"]

        def validation_step(self, batch, i):
            self.log("loss", self.model(**batch)["loss"], batch_size=len(batch["x"]))

        def predict_step(self, batch, i):
            return batch["value"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module()


def lightning_trainer(directory, **options):
    lightning = pytest.importorskip("lightning")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(accelerator="cpu", default_root_dir=directory, **{**quiet, **options})


@pytest.mark.parametrize("stop", [4, 15, 22])
def test_lightning_resumes_in_the_middle_of_an_epoch(tmp_path, stop):
    lightning = pytest.importorskip("lightning")
    first, second = lightning_model(), lightning_model()
    save = lightning.pytorch.callbacks.ModelCheckpoint(tmp_path, "stop", every_n_train_steps=stop)
    lightning_trainer(tmp_path, max_steps=stop, max_epochs=3, callbacks=[save]).fit(first, loader())
    trainer = lightning_trainer(tmp_path, max_epochs=3, enable_checkpointing=False)
    trainer.fit(second, loader(), ckpt_path=tmp_path / "stop.ckpt")
    assert first.model.seen + second.model.seen == epochs(3)


def test_lightning_trains_where_the_number_of_batches_is_not_known(tmp_path):
    module = lightning_model()
    lightning_trainer(tmp_path, max_epochs=3, enable_checkpointing=False).fit(
        module, loader(DS.filter("value >= 0").batch(4))
    )
    assert module.model.seen == epochs(3)


def test_lightning_validates_and_predicts(tmp_path):
    module = lightning_model()
    trainer = lightning_trainer(tmp_path, max_epochs=2, enable_checkpointing=False, num_sanity_val_steps=0)
    trainer.fit(module, loader(), loader(DS.take(10).batch(4)))
    validation = [len(batch) for batch in module.model.seen[15:18]]
    assert module.model.seen[:15] + module.model.seen[18:33] == epochs(2) and validation == [4, 4, 2]
    assert [batch.tolist() for batch in trainer.predict(module, iter(loader()))] == epochs(1)


# ---- Keras ----

KERAS = """
import os, sys
os.environ["KERAS_BACKEND"] = sys.argv[1]
import json
import keras
import cachew, cachew.torch

ds = cachew.Dataset.range(60).assign(x="float32(value)", y="float32(value * 2)").shuffle().batch(4)
seen, epochs = [], []

train = cachew.torch.loader(ds, seed=1, as_tuple=("x", "y"))
hand_over = train._hand_over

def record(value):
    batch = hand_over(value)
    seen.append(batch[0].long().tolist())
    return batch

train._hand_over = record
model = keras.Sequential([keras.Input(()), keras.layers.Reshape((1,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(1e-5), loss="mse")
history = model.fit(train, epochs=2, verbose=0)
whole = len(seen)
model.fit(train, epochs=2, steps_per_epoch=5, verbose=0)
loss = model.evaluate(cachew.torch.loader(ds.take(3), seed=1, as_tuple=["x", "y"]), verbose=0)
print(json.dumps([seen, whole, history.history["loss"], loss, keras.backend.backend()]))
"""


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_fits_with_epochs_and_steps(script, backend):
    for name in ("keras", backend):
        if importlib.util.find_spec(name) is None:  # importing keras would need tensorflow
            pytest.skip(f"could not import {name}")
    ran = script(KERAS, backend)
    assert ran.returncode == 0, ran.stderr[-2000:]
    seen, whole, losses, loss, used = json.loads(ran.stdout.splitlines()[-1])
    # Keras takes the first batch of epoch 0 to find the shapes, and trains on the epochs after it
    want = epochs(4)
    assert (
        used == backend
        and whole == 31
        and seen[:31] == [want[0], *want[15:45]]
        and seen[31:41] == want[45:55]
    )
    assert len(losses) == 2 and losses[1] < losses[0] and loss > 0


# ---- JAX in several processes ----

JAX = """
import json, sys
import jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import cachew, cachew.jax

sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
ds = cachew.Dataset.range(60).shuffle().batch(4, drop_remainder=True)
found = []
for batch in cachew.jax.loader(ds, seed=1, sharding=sharding):
    value = batch["value"]
    here = np.asarray(value.addressable_shards[0].data)
    found.append([value.shape, here.tolist(), int(jax.jit(sum)(value))])
print(json.dumps(found))
"""


def test_jax_refuses_a_short_batch_in_a_global_array():
    pytest.importorskip("jax")
    import cachew.jax

    of_processes = types.SimpleNamespace(is_fully_addressable=False)
    convert = cachew.jax._Converter(of_processes, 4)
    with pytest.raises(cachew.OptionError, match="batch_size is 2: expected 4, .*drop_remainder=True"):
        convert(Dataset.range(2).batch(4).peek())


def test_jax_arrays_of_several_processes(tmp_path):
    pytest.importorskip("jax")
    (tmp_path / "run.py").write_text(JAX)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, tmp_path / "run.py", address, str(rank)], stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        first, second = (
            json.loads(process.communicate(timeout=HANG_S)[0].splitlines()[-1]) for process in processes
        )
    finally:
        for process in processes:
            process.kill()
            process.wait()
    ds = Dataset.range(60).shuffle().batch(4)
    assert [part for _, part, _ in first] == epochs(1, ds, rank=0, world_size=2)
    assert [part for _, part, _ in second] == epochs(1, ds, rank=1, world_size=2)
    for (shape, part, total), (_, other, total_there) in zip(first, second):
        assert shape == [8] and total == total_there == sum(part + other)
