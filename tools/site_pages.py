"""The pages of the documentation site. Two programs load this file (see mkdocs.yml): mkdocs for its hooks,
and griffe, which reads the Python package for the API reference, for `Docstrings`.

The site has the folders of the repository, so that links between pages work in both. Its pages are README.md,
the pages of docs/, and every file that a page of the site links to: a source file becomes a page that shows
it, a directory a page that lists its files.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[1]
INDEX = "docs/README.md"
RECIPES = "docs/recipes/README.md"
MODULES = ("cachew", "cachew.torch", "cachew.jax", "cachew.demo")
# Code of Markdown, or a link to a file. Only the link has groups.
CODE_OR_LINK = re.compile(
    r"^```.*?^```$|`[^`\n]*`|(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))", re.MULTILINE | re.DOTALL
)
# Code of Markdown, or a line of a paragraph before a list. Only the line has a group.
CODE_OR_LINE = re.compile(r"^```.*?^```$|^([^\s|#\d-][^\n]*\n)(?=- |1\. )", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^## (.*?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
OPERATOR = re.compile(r"^### `(\w+)`\n+`\w+`: (\S.*?)$", re.MULTILINE)
PARAMETER = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".json": "json", ".sh": "bash", ".proto": "proto"}


def page_of(link: str, page: str) -> str | None:
    """The page or file of the site that a link leads to; None if there is no such file in the repository.
    page: the page that has the link."""
    path = ((ROOT / page).parent / link).resolve()
    if not path.exists() or not path.is_relative_to(ROOT):
        return None
    if path.is_dir():
        path /= "README.md"
    name = path.relative_to(ROOT).as_posix()
    return name if path.suffix in (".md", ".png") else f"{name}.md"


def links(text: str, page: str) -> list[str]:
    """The pages and files of the site that a text links to, in order, without repetitions."""
    found = (page_of(match[2], page) for match in CODE_OR_LINK.finditer(text) if match[2])
    return list(dict.fromkeys(name for name in found if name))


def title(path: Path) -> str:
    """How the page of a directory names a file of the directory."""
    return path.read_text().partition("\n")[0].removeprefix("# ") if path.suffix == ".md" else path.name


def text_of(page: str) -> str:
    """The Markdown of a page: its file, or a list of a directory's files, or the text of a source file."""
    path = ROOT / page
    if path.exists():
        return path.read_text()
    if path.name == "README.md":
        files = sorted(p for p in path.parent.rglob("*") if p.is_file() and p.suffix not in (".pyc", ".so"))
        return f"# {path.parent.relative_to(ROOT)}\n\n" + "".join(
            f"- [{title(p)}]({p.relative_to(path.parent).as_posix()})\n" for p in files
        )
    source = path.with_suffix("")
    fence = "`" * 4
    return (
        f"# {source.relative_to(ROOT)}\n\n"
        f"{fence}{LANGUAGES.get(source.suffix, '')}\n{source.read_text()}{fence}\n"
    )


def public_names(module: str) -> list[str]:
    """`__all__` of a module of the package, which is not imported: the site needs no compiled package."""
    path = ROOT / "python" / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    raise PluginError(f"{module} has no __all__")


def reference_page(module: str) -> str:
    return f"api/{module}.md"


def reference(module: str) -> str:
    """A page of the API reference. The attributes of all exceptions are described at `Error`."""
    text = f"# {module}\n\n"
    for name in public_names(module):
        text += f"::: {module}.{name}\n\n"
        if name.endswith("Error") and name != "Error":
            text += "    options:\n      inherited_members: false\n\n"
    return text


def in_navigation() -> list:
    """The navigation: the sections and pages of docs/README.md, in its order, each page once."""
    tutorial = "docs/tutorial.md"
    recipes = [page for page in links(text_of(RECIPES), RECIPES) if page.startswith("docs/recipes/")]
    placed = {"README.md", tutorial, RECIPES}
    sections = []
    for heading, text in SECTION.findall(text_of(INDEX)):
        pages = [page for page in links(text, INDEX) if page not in placed]
        placed.update(pages)
        sections.append({heading: [named(page) for page in pages]})
    return [
        {"Quickstart": "README.md"},
        named(tutorial),
        {"Recipes": [RECIPES, *(named(page) for page in recipes)]},
        {"API reference": [reference_page(module) for module in MODULES]},
        *sections,
        {"More": [{"All pages": INDEX}, named("CHANGELOG.md")]},
    ]


def named(page: str) -> dict[str, str]:
    """A page with its name in the navigation: its title up to a colon."""
    heading = text_of(page).partition("\n")[0]
    return {heading.removeprefix("# ").partition(": ")[0]: page}


def pages_of(navigation: list | dict | str) -> list[str]:
    if isinstance(navigation, str):
        return [navigation]
    values = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for value in values for page in pages_of(value)]


def on_config(config):
    config.nav = in_navigation()
    return config


def on_files(files, *, config):
    shown = set(pages_of(config.nav))
    css = ".md-grid { max-width: 80rem; }\n"  # room for code of 110 columns
    site = Files([f for f in files if f.src_dir != config.docs_dir])  # those of the theme
    site.append(File.generated(config, "site.css", content=css))
    for module in MODULES:
        site.append(File.generated(config, reference_page(module), content=reference(module)))
    # pages in docs/ that no other page links to are in no navigation, about which mkdocs warns
    pages = ["README.md", *(p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "docs").glob("**/*.md")))]
    for page in pages:  # which grows
        in_docs = page.startswith("docs/") and not page.startswith("docs/adr/")
        inclusion = InclusionLevel.UNDEFINED if page in shown or in_docs else InclusionLevel.NOT_IN_NAV
        if page.endswith(".png"):
            file = File.generated(config, page, abs_src_path=str(ROOT / page), inclusion=inclusion)
        else:
            text = text_of(page)
            file = File.generated(config, page, content=text, inclusion=inclusion)
            pages += [name for name in links(text, page) if name not in pages]
        site.append(file)
    return site


def on_page_markdown(markdown, *, page, config, files):
    """Makes links lead to the pages that show source files and list directories. Puts an empty line before
    lists, which mkdocs needs and code hosts do not."""
    source = page.file.src_uri

    def replaced(match: re.Match) -> str:
        name = page_of(match[2], source) if match[2] else None
        return f"{match[1]}{os.path.relpath(name, os.path.dirname(source))}{match[3]}" if name else match[0]

    markdown = CODE_OR_LINE.sub(lambda match: f"{match[0]}\n" if match[1] else match[0], markdown)
    return CODE_OR_LINK.sub(replaced, markdown)


class Docstrings(griffe.Extension):
    """Completes the docstrings of methods that take Python functions: puts the description of the operator
    before it, as cachew/_methods.py does, and the parameters, which the class describes, after it. Makes a
    list of the lines that describe parameters."""

    def __init__(self) -> None:
        self.operators = dict(OPERATOR.findall(text_of("docs/operators.md")))

    def on_function(self, *, func, **_) -> None:
        text = func.docstring.value if func.docstring else ""
        if func.path.startswith("cachew._functions.Functions."):
            operator = self.operators.get(func.name, "")
            described = func.parent.docstring.value.split("\n\n")
            parameters = [p for p in described if p.partition(":")[0] in func.parameters]
            text = "\n\n".join([operator[:1].upper() + operator[1:], text, *parameters])
        func.docstring = griffe.Docstring(PARAMETER.sub(r"\n- `\1`: ", text), parent=func)
