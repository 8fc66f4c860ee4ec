#!/usr/bin/env python3
"""Checks the structure of the C sources: width of lines, headers of other folders, sizes of structs, names of
static functions, operators' names outside src/ops, symbols that are defined twice, and cycles of dependencies
among files (the last two from the objects of a build).

usage: check_structure.py [--objects BUILD] [--report]

--report prints what it finds instead of failing.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 110
SKIPPED = {".git", "build", "shared", "__pycache__"}
C_ROOMS = ("src", "python", "include")
SCRIPTS = (".bash", ".js", ".proto", ".sh")
MOST_FIELDS = 30
MOST_FILES_PER_STATIC = 2
MOST_FILES_IN_CIRCLE = 6
INTERNAL = re.compile(r"(^|_)(internal|impl|private)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
STATIC = re.compile(r"^static\s+(?:[\w_]+[\s*]+)+?\**(\w+)\(", re.M)
STRUCT = re.compile(r"^(?:static\s+|typedef\s+)*struct\s*(\w*)\s*\{", re.M)
COMPARE = re.compile(r"\b(?:strcmp|strncmp|cw_streq|streq|cw_is)\s*\(")


def without_comments(text):
    """The text with comments blanked out; lines keep their numbers."""
    return COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def long_lines(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH:
            yield f"{path}:{number}: {len(line)} columns, expected at most {WIDTH}"


def foreign_headers(path, text, root):
    folder = path.parent
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match and INTERNAL.search(match.group(1)) and "/" in match.group(1):
            target = (root / "src" / match.group(1)).parent
            if target != folder:
                yield f'{path}:{number}: "{match.group(1)}" is internal to another folder'


def body_of(text, at):
    """What stands between the brace at `at` and its partner."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[at + 1 : i]
    return text[at + 1 :]


def fields_of(body):
    """Names of fields: those of structs inside count too, as they are part of it. Functions do not count."""
    n = 0
    depth = 0
    declaration = ""
    for ch in body:
        if ch == "{" and "=" not in declaration:
            depth += 1
            declaration = ""
            continue
        if ch == "}":
            depth -= 1
            declaration = "x "  # the name of what was inside follows, or none
            continue
        if ch == ";":
            words = declaration.strip()
            if words and words != "x" and "(*" not in words:
                n += 1 + re.sub(r"\([^()]*\)|\[[^\]]*\]", "", words).count(",")
            declaration = ""
            continue
        declaration += ch
    return n


def big_structs(path, text):
    for match in STRUCT.finditer(text):
        n = fields_of(body_of(text, match.end() - 1))
        if n > MOST_FIELDS:
            number = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{number}: struct {match.group(1)} has {n} fields, expected at most {MOST_FIELDS}"


def statics(files):
    """{name: files} of static functions."""
    found = collections.defaultdict(set)
    for path, text in files:
        if path.suffix == ".c":
            for match in STATIC.finditer(text):
                found[match.group(1)].add(path)
    return found


def shared_names(files):
    for name, paths in sorted(statics(files).items()):
        if len(paths) > MOST_FILES_PER_STATIC:
            where = ", ".join(map(str, sorted(paths)))
            yield f"{name}: a static function of this name is in {len(paths)} files: {where}"


def operator_names(files):
    names = set()
    for path, text in files:
        if path.parts[:2] == ("src", "ops"):
            for match in re.finditer(r"struct cw_op_desc \w+ = \{\s*\.name = \"(\w+)\"", text):
                names.add(match.group(1))
    return names


def compared_operators(files):
    names = operator_names(files)
    for path, text in files:
        if path.parts[:2] == ("src", "ops") or path.parts[:2] == ("python", "src"):
            continue
        for match in COMPARE.finditer(text):
            call = arguments(text, match.end())
            for literal in re.findall(r'"(\w+)"', call):
                if literal in names and "name" in call:
                    number = text.count("\n", 0, match.start()) + 1
                    yield f'{path}:{number}: compares with "{literal}", the name of an operator'


def arguments(text, at):
    depth = 1
    for i in range(at, min(len(text), at + 400)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[at:i]
    return text[at : at + 400]


# ---- circles among linked files ----


def symbols(objects):
    """{file: (defined, undefined)}"""
    out = subprocess.run(
        ["nm", "-A", "--format=posix", *map(str, objects)], check=True, stdout=subprocess.PIPE, text=True
    )
    found = collections.defaultdict(lambda: (set(), set()))
    for line in out.stdout.splitlines():
        where, name, kind = line.split()[:3]
        name_of_file = where.rstrip(":")
        if kind == "U":
            found[name_of_file][1].add(name)
        elif kind in "TDBRVWC":
            found[name_of_file][0].add(name)
    return found


def components(graph):
    """Strongly connected components with more than one member (Tarjan, without recursion)."""
    index, low, on, stack, result = {}, {}, set(), [], []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, edges = work[-1]
            for to in edges:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on.add(to)
                    work.append((to, iter(sorted(graph[to]))))
                    break
                if to in on:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = []
                    while True:
                        last = stack.pop()
                        on.discard(last)
                        members.append(last)
                        if last == node:
                            break
                    if len(members) > 1:
                        result.append(sorted(members))
    return result


def source_of(object_file, sources):
    """The source of an object: meson names src/engine/x.c `src_engine_x.c.o` or `engine_x.c.o`, by where it
    is built.
    """
    name = Path(object_file).name.removesuffix(".o")
    return sources.get(name) or sources.get("src_" + name)


def link_facts(build):
    """{symbol: sources that define it}, {source: symbols that it uses}"""
    sources = {}
    for path in (ROOT / "src").rglob("*.c"):
        words = path.relative_to(ROOT).parts
        sources["_".join(words)] = path.relative_to(ROOT)
        sources["_".join(words[1:])] = path.relative_to(ROOT)
        sources["_".join(words[2:])] = path.relative_to(ROOT)
    objects = [
        o
        for folder in sorted(build.rglob("*.a.p")) + sorted(build.glob("cachew.p"))
        for o in sorted(folder.rglob("*.o"))
    ]
    defined, uses = {}, {}
    for object_file, (own, undefined) in symbols(objects).items():
        source = source_of(object_file, sources)
        if source:
            uses.setdefault(source, set()).update(undefined)
            for name in own:
                defined.setdefault(name, set()).add(source)
    return defined, uses


def defined_twice(defined):
    """The linker takes one of two functions of the same name in different libraries, and reports nothing."""
    for name, sources in sorted(defined.items()):
        if len(sources) > 1:
            yield f"{name} is defined in {' and '.join(sorted(map(str, sources)))}"


def link_graph(defined, uses):
    return {
        source: {
            next(iter(defined[name])) for name in names if name in defined and source not in defined[name]
        }
        for source, names in uses.items()
    }


def room(path):
    """The room of a source: its folder in src/, or the second one below src/service."""
    words = path.parts[1:-1]
    return "/".join(words[: 2 if words[0] == "service" else 1])


def circles(graph):
    """Circles of {file: files that it uses}: of too many files in a room, and of any rooms."""
    rooms = collections.defaultdict(set)
    for source, used in graph.items():
        rooms[room(source)] |= {room(u) for u in used} - {room(source)}
    for members in components(rooms):
        yield f"a circle of rooms: {', '.join(members)}"
    for members in components(graph):
        if len(members) > MOST_FILES_IN_CIRCLE:
            yield f"{room(members[0])}: a circle of {len(members)} files: {', '.join(map(str, members))}"


def files(root):
    """The paths of the files of the project, relative to root: without build directories."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("build-"))
        yield from (Path(folder, name).relative_to(root) for name in sorted(names))


def sources(root):
    return [
        (p, (root / p).read_text()) for p in files(root) if p.suffix in (".c", ".h") and p.parts[0] in C_ROOMS
    ]


def scripts(root):
    """Other files whose lines have at most WIDTH columns: shell, make, meson, JavaScript, protocols."""
    return [
        (p, (root / p).read_text())
        for p in files(root)
        if p.suffix in SCRIPTS or p.name in ("Makefile", "meson.build", "demo", "test", "run")
    ]


def violations(texts, build=None, others=()):
    bare = [(path, without_comments(text)) for path, text in texts]
    found = {"width": [v for path, text in [*texts, *others] for v in long_lines(path, text)]}
    found["internal headers"] = [v for path, text in bare for v in foreign_headers(path, text, Path())]
    found["structs"] = [v for path, text in bare for v in big_structs(path, text)]
    found["static names"] = list(shared_names(bare))
    found["operators"] = list(compared_operators(bare))
    if build:
        defined, uses = link_facts(build)
        found["symbols"] = list(defined_twice(defined))
        found["circles"] = list(circles(link_graph(defined, uses)))
    return found


def test():
    """Each check fires on what it is for, and on nothing else."""
    fields = "\n".join(f"int f{i};" for i in range(MOST_FIELDS + 1))
    files = {
        "src/ops/image/resize.c": 'const struct cw_op_desc cw_op_resize = {\n    .name = "resize",\n};\n',
        "src/net/conn_impl.h": "struct few { int a, b; struct { int c; } inner; };\n",
        "src/net/conn.c": '#include "net/conn_impl.h"\nstatic int add(int a)\n{\n    return a;\n}\n',
        "src/cli/a.c": '#include "net/conn_impl.h"\nstatic int add(int a)\n{\n    return a;\n}\n',
        "src/cli/b.c": "static int add(int a)\n{\n    return a;\n}\n",
        "src/cli/c.c": 'bool x(const char *name)\n{\n    return strcmp(name, "resize") == 0;\n}\n',
        "src/cli/d.c": "int wide;" + " " * WIDTH + "/* */\n",
        "src/cli/e.h": f"struct many {{\n{fields}\n}};\n",
    }
    found = violations([(Path(name), text) for name, text in files.items()])
    expected = {
        "width": ["src/cli/d.c:1"],
        "internal headers": ["src/cli/a.c:1"],
        "structs": ["src/cli/e.h:1"],
        "static names": ["add"],
        "operators": ["src/cli/c.c:3"],
    }
    assert {kind: [line.split(": ")[0] for line in lines] for kind, lines in found.items()} == expected, found
    ring = [Path(f"src/a/{i}.c") for i in range(MOST_FILES_IN_CIRCLE + 1)]
    graph = {path: {ring[i - 1]} for i, path in enumerate(ring)}
    assert len(list(circles(graph))) == 1, "a circle of too many files"
    assert not list(circles({**graph, ring[0]: set()})), "no circle"
    one, two, three = Path("src/a/1.c"), Path("src/service/b/2.c"), Path("src/a/3.c")
    assert list(defined_twice({"f": {one, two}, "g": {one}})) == [f"f is defined in {one} and {two}"]
    assert len(list(circles({one: {two}, two: {three}, three: set()}))) == 1, "a circle of rooms"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--objects", type=Path, metavar="BUILD", help="a build directory: circles among its objects"
    )
    parser.add_argument("--report", action="store_true", help="print all, and the number of each kind")
    args = parser.parse_args()
    test()
    found = violations(sources(ROOT), args.objects, scripts(ROOT))
    for kind, lines in found.items():
        for line in lines:
            print(line)
        if args.report:
            print(f"-- {kind}: {len(lines)}")
    bad = any(found.values())
    if not args.report and not bad:
        print(f"structure: {', '.join(found)}: ok")
    return int(bad and not args.report)


if __name__ == "__main__":
    sys.exit(main())
