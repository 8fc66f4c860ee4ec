"""Hosts compute with the user's modules as the program has them, whatever their files say, and whatever a
host had before.
"""

from pathlib import Path

import cachew
import pytest

HELPER = """
import helper2
SCALE = 2
TABLE = {"a": 1}
class Config:
    bias = 0
    def add(self, x): return x + self.bias
def shift(x): return x + 1
double = lambda x: 2 * x
def f(e): return {"y": int(e["value"]) * SCALE + TABLE["a"]}
def g(e): return {"y": helper2.deep(Config().add(shift(int(e["value"]))))}
def h(e): return {"y": double(int(e["value"]))}
def late(e):
    import later
    return {"y": later.K}
"""
BEGIN = """
import importlib, sys
from pathlib import Path
import cachew, helper, helper2
sys.dont_write_bytecode = True
FOLDER = Path(helper.__file__).parent
def edit(name, old, new):
    file = FOLDER / f"{name}.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
def run(f, **options):
    ds = cachew.Dataset.range(stop=3).map(f, **options).batch(3)
    return next(iter(ds))["y"].tolist()
"""


@pytest.fixture
def program(script, tmp_path):
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "helper2.py").write_text("OFFSET = 0\ndef deep(x): return x + OFFSET\n")
    (tmp_path / "later.py").write_text("K = 1\n")

    def run(code):
        ran = script(BEGIN + code)
        assert ran.returncode == 0, ran.stderr
        return ran

    return run


@pytest.mark.large
@pytest.mark.parametrize("version", ["", ", version='1'"])
@pytest.mark.parametrize(
    ("change", "function", "before", "after"),
    [
        ("helper.SCALE = 3", "helper.f", [1, 3, 5], [1, 4, 7]),
        ("helper.TABLE['a'] = 5", "helper.f", [1, 3, 5], [5, 7, 9]),
        (
            "edit('helper', 'SCALE = 2', 'SCALE = 10'); importlib.reload(helper)",
            "helper.f",
            [1, 3, 5],
            [1, 11, 21],
        ),
        (
            "edit('helper', '* SCALE', '* SCALE * 2'); importlib.reload(helper)",
            "helper.f",
            [1, 3, 5],
            [1, 5, 9],
        ),
        ("edit('helper', '* SCALE', '* SCALE * 2')", "helper.f", [1, 3, 5], [1, 3, 5]),
        ("edit('helper', 'def shift', 'def other')", "helper.g", [1, 2, 3], [1, 2, 3]),
        ("helper2.OFFSET = 7", "helper.g", [1, 2, 3], [8, 9, 10]),
        ("helper2.deep = lambda x: x + 20", "helper.g", [1, 2, 3], [21, 22, 23]),
        ("helper.Config.bias = 4", "helper.g", [1, 2, 3], [5, 6, 7]),
        (
            "edit('helper', 'x + self.bias', 'x - 1'); importlib.reload(helper)",
            "helper.g",
            [1, 2, 3],
            [0, 1, 2],
        ),
        ("helper.shift = lambda x: -x", "helper.g", [1, 2, 3], [0, -1, -2]),
        ("edit('helper', '2 * x', '3 * x')", "helper.h", [0, 2, 4], [0, 2, 4]),
        ("helper2.OFFSET = 7", "lambda e: {'y': helper2.deep(int(e['value']))}", [0, 1, 2], [7, 8, 9]),
        ("edit('later', '1', '2')", "helper.late", [1, 1, 1], [2, 2, 2]),
    ],
)
def test_hosts_compute_with_the_modules_that_the_program_has(
    program, change, function, before, after, version
):
    """They computed with those that they had imported, or what the files said by then."""
    program(
        f"assert run({function}{version}) == {before}, run({function})\n{change}\nassert "
        f"run({function}{version}) == {after}, run({function})\n"
    )


@pytest.mark.large
def test_functions_of_one_pipeline_that_expect_different_globals(program):
    program("""
def scaled(e): return {"y": int(e["y"]) * helper.SCALE}
ds = cachew.Dataset.range(stop=1000).map(helper.f)
helper.SCALE = 100
ds = ds.map(scaled).batch(10)
for threads in 1, 3:
    got = [y for b in ds.iterator(epochs=1, threads=threads) for y in b["y"].tolist()]
    assert got == [(2 * i + 1) * 100 for i in range(1000)], got[:5]
""")


def test_what_the_module_itself_makes_is_left_as_it_is(program, tmp_path):
    """A host that put everything there anew would have copies of what ought to be one object."""
    (tmp_path / "helper.py").write_text("""
import dataclasses, enum, functools, logging, os, re, collections, typing
import numpy as np
from helper2 import deep
log = []
PATTERN = re.compile("a+")
ARRAY = np.arange(5)
NAMES = {"x", "y", "z"}
Pair = collections.namedtuple("Pair", "a b")
class Colour(enum.Enum):
    RED = 1
@dataclasses.dataclass
class Point:
    x: int = 0
    y: list = dataclasses.field(default_factory=list)
class Slotted:
    __slots__ = ("a",)
    KINDS = [list, dict]
    def __init__(self): self.a = 1
    @property
    def b(self): return self.a
    @classmethod
    def make(cls): return cls()
    @staticmethod
    def one(): return 1
@functools.lru_cache
def cached(x): return x
def wraps(f):
    @functools.wraps(f)
    def call(*args): return f(*args)
    return call
@wraps
def wrapped(x): return x
T = typing.TypeVar("T")
def f(e):
    used = (log, PATTERN, ARRAY, NAMES, Pair, Colour.RED, Point(), Slotted.make(), cached(1), wrapped(2),
            deep(3), T, os, re)
    return {"y": len(used)}
""")
    program("""
import base64, pickle, subprocess
from cachew._functions import _Call
call = _Call("map", helper.f, 300, None, True, None)
places = pickle.loads(base64.b64decode(call.modules))
assert len(places) > 20, places
child = '''
import sys
sys.path.insert(0, sys.argv[1])
from cachew import _places
_places._put = lambda place: print("put", place[:3])
_places.adopt(sys.stdin.read())
print("adopted", len(_places._adopted))
'''
words = [sys.executable, "-c", child, str(FOLDER)]
ran = subprocess.run(words, input=call.modules, capture_output=True, text=True)
assert ran.stdout == f"adopted {len(places)}\\n", ran.stdout + ran.stderr
""")


def test_a_large_table_that_the_program_changed_is_named(program, tmp_path):
    (tmp_path / "helper.py").write_text(
        "import numpy as np\nTABLE = np.zeros(1 << 20, np.uint8)\ndef "
        "f(e): return {'y': int(TABLE[e['value']])}\n"
    )
    program("""
import numpy as np
assert run(helper.f) == [0, 0, 0]
helper.TABLE = np.ones(1 << 21, np.uint8)
try:
    run(helper.f)
except cachew.PipelineError as error:
    assert "helper.TABLE has another value in the program than after importing" in str(error), error
    assert "helper.py" in str(error), error
else:
    raise AssertionError("no error")
""")


def test_a_module_that_is_imported_when_the_function_runs_and_was_edited_since_is_named(program):
    program("""
ds = cachew.Dataset.range(stop=3).map(helper.late, outputs={"y": "int64"}).batch(3)
edit("later", "1", "2")
try:
    ds.peek()
except cachew.PipelineError as error:
    assert "the module later, which the function imports when it runs" in str(error), error
else:
    raise AssertionError("no error")
""")


# ---- what a host keeps ----


@pytest.mark.parametrize(
    ("leave", "look"),
    [
        ("np.seterr(all='raise')", "np.geterr()['divide'] == 'raise'"),
        ("os.chdir('/proc/self')", "os.getcwd().startswith('/proc')"),
        ("os.environ.update(LEFT='1')", "'LEFT' in os.environ"),
        ("random.seed(1)", "random.random() == 0.13436424411240122"),
        ("decimal.getcontext().__setattr__('prec', 3)", "decimal.getcontext().prec == 3"),
        ("setattr(math, 'left', 1)", "hasattr(math, 'left')"),
    ],
)
def test_a_function_finds_nothing_that_one_of_another_pipeline_left_in_its_host(program, leave, look):
    program(f"""
import decimal, math, os, random
import numpy as np
def first(e):
    {leave}
    return {{"y": 1}}
def second(e):
    return {{"y": {look}}}
assert run(first) == [1, 1, 1]
assert run(second) == [False, False, False]
assert run(first) == [1, 1, 1]
assert run(second) == [False, False, False]
""")


def test_a_function_that_can_not_be_loaded_where_another_one_ran_is_loaded_in_a_fresh_host(program):
    program("""
def first(e):
    sys.modules["later"] = None  # an import raises from here on
    return {"y": 1}
class Imports:
    def __reduce__(self): return importlib.import_module, ("later",)
    def __eq__(self, other): return True
later = Imports()
def second(e): return {"y": later.K}
ds = cachew.Dataset.range(stop=3).map(first, outputs={"y": "int64"})
ds = ds.map(second, outputs={"y": "int64"}, version="1").batch(3)
assert next(iter(ds))["y"].tolist() == [1, 1, 1]
""")


def test_datasets_with_the_same_functions_share_their_hosts_and_so_does_finding_outputs(program):
    program("""
import os
def f(e): return {"y": os.getpid()}
def hosts(**outputs):
    ds = cachew.Dataset.range(stop=9).map(f, **outputs).batch(3)
    return {y for b in ds.iterator(epochs=1, threads=1) for y in b["y"].tolist()}
first = hosts()
assert len(first) == 1 and hosts() == first and hosts(outputs={"y": "int64"}) == first
children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
assert list(map(int, children)) == list(first), children
""")


def test_the_functions_of_a_chain_are_tried_in_one_host(program):
    """What they import would be imported once for each, before the first batch comes."""
    program("""
import os
def f(e): return {"f": os.getpid()}
def g(e): return {**e, "g": os.getpid()}
def h(e): return {**e, "h": os.getpid()}
ds = cachew.Dataset.range(stop=9).map(f).map(g).map(h).batch(3)
batch = next(iter(ds.iterator(epochs=1, threads=1)))
assert len({*batch["f"].tolist(), *batch["g"].tolist(), *batch["h"].tolist()}) == 1, batch
children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
assert list(map(int, children)) == batch["f"][:1].tolist(), children
""")


@pytest.mark.large
def test_hosts_of_pipelines_that_are_over_do_not_pile_up(program):
    program("""
import os
def children():
    return len([p for p in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()])
def make(k): return lambda e: {"y": k}
def first(k):
    ds = cachew.Dataset.range(stop=3).map(make(k), outputs={"y": "int64"}).batch(3)
    return next(iter(ds.iterator(threads=1)))["y"].tolist()
for k in range(12):
    assert first(k) == [k] * 3
assert children() <= len(os.sched_getaffinity(0)) + 1, children()
""")


def test_workers_of_a_service_compute_with_the_modules_that_the_program_has(program):
    program("""
if __name__ == "__main__":
    for scale, expected in (3, [1, 4, 7]), (5, [1, 6, 11]):
        helper.SCALE = scale
        ds = cachew.Dataset.range(stop=3).map(helper.f).batch(3)
        with ds.distribute("local", epochs=1, open_timeout_s=None) as batches:
            assert next(batches)["y"].tolist() == expected
""")


def test_what_comes_behind_a_part_without_identity_is_as_the_program_has_it_too(program, tmp_path):
    """With version=, hosts had the file's, as nothing was looked at behind the lock."""
    (tmp_path / "locked.py").write_text("""
import threading
A_LOCK, SCALE = threading.Lock(), 1
def f(e):
    with A_LOCK:
        return {"y": SCALE}
""")
    program("""
import locked
locked.SCALE = 3
assert run(locked.f, version="1") == [3, 3, 3], run(locked.f, version="1")
""")


def test_modules_that_import_each_other_are_imported_in_the_order_of_the_program(program, tmp_path):
    """Hosts imported them by name, and the first one found only a part of itself in the other."""
    (tmp_path / "aa.py").write_text("import zz\nclass B: k = 4\n")
    (tmp_path / "zz.py").write_text("from aa import B\ndef k(): return B.k\n")
    program("""
import zz
from aa import B
def f(e): return {"y": zz.k() + B.k}
assert run(f) == [8, 8, 8]
""")


@pytest.mark.parametrize(
    ("function", "gone", "expected"),
    [
        ("helper.late", "later", "the module later, which the function imports when it runs"),
        ("helper.f", "helper", "importing helper in the host process fails: No module named 'helper'"),
        (
            "lambda e: {'y': helper2.OFFSET}",
            "helper2",
            "importing helper2 in the host process fails: No module named 'helper2'",
        ),
    ],
)
def test_a_module_whose_file_was_deleted_is_named_with_the_function(program, function, gone, expected):
    """It was a bare ModuleNotFoundError."""
    program(f"""
ds = cachew.Dataset.range(stop=3).map({function}, outputs={{"y": "int64"}}).batch(3)
(FOLDER / "{gone}.py").unlink()
try:
    ds.peek()
except cachew.PipelineError as error:
    assert {expected!r} in str(error), error
else:
    raise AssertionError("no error")
""")


MAKES_DATASETS = """
from cachew import Dataset

def numbers():
    for i in range(10):
        yield {"value": i}

def doubled(element):
    return {"value": element["value"] * 2}

ds = Dataset.iterable(numbers).map(doubled).batch(5)
mapped = Dataset.range(4).map(doubled).filter("value > 0").batch(2)
"""


def test_a_module_that_makes_datasets_when_it_is_imported(tmp_path, script):
    """Each host that imported it for a function needed another host to know the function's outputs,
    without end.
    """
    (tmp_path / "its_datasets.py").write_text(MAKES_DATASETS)
    ran = script(
        "import its_datasets as m\nprint([b['value'].tolist() for b in m.ds], "
        "[b['value'].tolist() for b in m.mapped])",
        cwd=tmp_path,
    )
    assert ran.stdout == "[[0, 2, 4, 6, 8], [10, 12, 14, 16, 18]] [[2, 4], [6]]\n", ran.stderr


def test_such_a_dataset_says_in_a_host_why_it_is_none(tmp_path, script):
    (tmp_path / "its_datasets.py").write_text(
        MAKES_DATASETS + "\ndef used(element):\n    return {'value': len(list(mapped))}\n"
    )
    ran = script(
        "import its_datasets as m\nfrom cachew import Dataset\nlist(Dataset.range(2).map(m.used, "
        'version="1"))',
        cwd=tmp_path,
    )
    assert "before the outputs of its functions can be known" in ran.stderr


def test_such_a_dataset_may_be_put_together_with_others(tmp_path, script):
    (tmp_path / "its_datasets.py").write_text(
        MAKES_DATASETS
        + "\nboth = Dataset.concat([Dataset.range(4).map(doubled), Dataset.range(2)]).batch(3)\n"
    )
    ran = script("import its_datasets as m\nprint([b['value'].tolist() for b in m.both])", cwd=tmp_path)
    assert ran.stdout == "[[0, 2, 4], [6, 0, 1]]\n", ran.stderr


def test_a_package_that_is_reached_by_a_symbolic_link_hides_no_other_package(script, tmp_path):
    """Hosts found the package's own torch.py for `import torch`, in an environment behind a link."""
    link = tmp_path / "link"
    link.symlink_to(Path(cachew.__file__).parents[1])
    ran = script(f"""
import sys
sys.path.insert(0, {str(link)!r})
import cachew
assert cachew.__file__.startswith({str(link)!r}), cachew.__file__
def places(element):
    import os, sys
    return {{"n": sum(os.path.exists(os.path.join(place, "_host.py")) for place in sys.path)}}
print(next(iter(cachew.Dataset.range(2).map(places).batch(2)))["n"].tolist())
""")
    assert ran.stdout == "[0, 0]\n", ran.stdout + ran.stderr
