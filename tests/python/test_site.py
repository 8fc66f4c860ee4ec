"""The documentation site, as `make site` builds it: all pages can be reached, all links lead to a place, and
the API reference is complete.
"""

import inspect
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import cachew
import pytest
from deadlines import HANG_S
from example_data import once

ROOT = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """The targets of a page's links, and the ids of its elements."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids = set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links.update(found[name] for name in ("href", "src") if found.get(name))
        self.ids.update(found[name] for name in ("id",) if found.get(name))


def build(tree, site):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        cwd=tree,
    )


@pytest.fixture(scope="module")
def site(shared_dir):
    pytest.importorskip("mkdocs")

    def make(path):
        done = build(ROOT, path)
        assert done.returncode == 0, done.stderr[-3000:]

    return once(shared_dir, "site", make)


@pytest.fixture(scope="module")
def pages(site):
    """Path -> Page, of all pages that can be reached from the first one."""
    pages, paths = {}, [site / "index.html"]
    for path in paths:  # which grows
        if path.suffix != ".html" or path in pages:
            continue
        pages[path] = Page(path)
        for link in pages[path].links:
            url = urlsplit(link)
            if not url.scheme and not url.netloc and url.path:
                paths.append((path.parent / unquote(url.path)).resolve())
    return pages


@pytest.mark.large
def test_each_page_can_be_reached(site, pages):
    assert set(site.rglob("*.html")) - set(pages) == {site / "404.html"}
    for source in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        name = source.relative_to(ROOT).with_suffix(".html").as_posix().replace("README", "index")
        assert site / name in pages


@pytest.mark.large
def test_each_link_leads_to_a_place(site, pages):
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            assert target.is_file(), f"{path.relative_to(site)}: {link}"
            if url.fragment and target in pages and not url.fragment.startswith("__"):  # __: of the theme
                assert unquote(url.fragment) in pages[target].ids, f"{path.relative_to(site)}: {link}"


@pytest.mark.large
def test_nothing_is_loaded_from_other_hosts(pages):
    for path in pages:
        source = path.read_text()
        assert 'src="http' not in source and 'rel="stylesheet" href="http' not in source, path


@pytest.mark.large(keep=0)
@pytest.mark.parametrize("module", ["cachew", "cachew.torch", "cachew.jax", "cachew.demo"])
def test_the_reference_has_every_public_name(site, pages, module):
    public = pytest.importorskip(module, exc_type=ImportError)
    ids = pages[site / "api" / f"{module}.html"].ids
    assert [name for name in public.__all__ if f"{module}.{name}" not in ids] == []
    for cls in (value for value in map(public.__dict__.get, public.__all__) if isinstance(value, type)):
        assert [name for name in described(cls) if f"{module}.{cls.__name__}.{name}" not in ids] == []


def described(cls):
    """The names of the public methods and properties of a class that have a docstring in the package. Those
    of exceptions are described at `Error`."""
    for name in dir(cls):
        owner = next(c for c in cls.__mro__ if name in vars(c))
        value = vars(owner)[name]
        if (
            not name.startswith("_")
            and owner.__module__.startswith("cachew")
            and (owner is cls or not issubclass(cls, cachew.Error))
            and (inspect.isroutine(value) or isinstance(value, property))
            and inspect.getdoc(value)
        ):
            yield name


@pytest.mark.large
def test_mistakes_end_the_build(tmp_path):
    pytest.importorskip("mkdocs")
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("docs", "tools", "examples", "include", "bench", "python/cachew"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "docs" / "orphan.md").write_text("# Orphan\n")
    with (tmp_path / "docs" / "engine.md").open("a") as page:
        page.write("\n[one](absent.md), [two](service.md#absent), [three](../src/absent.c)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for mistake in ("docs/orphan.md", "absent.md", "service.md#absent", "../src/absent.c"):
        assert mistake in done.stderr
