"""Chains of operators in the form of a pipeline's JSON, a list of nodes: changes relative paths in them, and
writes a chain as Python code.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from cachew._operators import TABLE, Operator

Node = dict[str, Any]


def rebased(nodes: Iterable[Node], base_dir: str) -> list[Node]:
    """A copy of the chain with absolute paths. Its relative paths are relative to base_dir."""
    return [
        {name: _absolute(node["op"], name, value, base_dir) for name, value in node.items()} for node in nodes
    ]


def _absolute(op: str, name: str, value: Any, base_dir: str) -> Any:
    attribute = TABLE[op].attributes.get(name) if op in TABLE else None
    if attribute is None:
        return value
    if attribute.kind == "chains":
        return [rebased(chain, base_dir) for chain in value]
    if attribute.path:
        return _below(base_dir, value) if isinstance(value, str) else [_below(base_dir, v) for v in value]
    return value


def _below(base_dir: str, path: str) -> str:
    """The absolute path; a home directory, as `~/data`, stays as it is, unless a file has that very name."""
    absolute = os.path.join(base_dir, path)
    return path if path.startswith("~") and not os.path.exists(absolute) else absolute


def written(nodes: Iterable[Node], width: int = 100) -> str:
    """The chain as Python code, in one line if it is not longer than width."""
    calls = [_call(node) for node in nodes]
    line = "Dataset" + "".join(calls)
    if len(line) <= width and "\n" not in line:
        return line
    return f"(\n    Dataset{calls[0]}\n" + "".join(f"    {call}\n" for call in calls[1:]) + ")"


def _call(node: Node) -> str:
    attributes = {name: value for name, value in node.items() if name != "op"}
    if (
        node["op"] == "assign"
        and list(attributes) == ["set"]
        and all(name.isidentifier() for name in attributes["set"])
    ):
        return f".assign({', '.join(f'{name}={value!r}' for name, value in attributes['set'].items())})"
    op = TABLE.get(node["op"])
    arguments = []
    for name in op.positional if op else ():
        if name not in attributes:
            break
        arguments.append(_argument(op, name, attributes.pop(name)))
    arguments += [f"{name}={_argument(op, name, value)}" for name, value in attributes.items()]
    return f".{'filter' if node['op'] == 'filter_function' else node['op']}({', '.join(arguments)})"


def _argument(op: Operator | None, name: str, value: Any) -> str:
    attribute = op.attributes.get(name) if op else None
    if attribute is None or attribute.kind != "operators":
        return _value(value)
    if value and isinstance(value[0], list):
        return f"[{', '.join(_function(chain) for chain in value)}]"
    return _function(value)


def _function(chain: Iterable[Node]) -> str:
    return "lambda ds: ds" + "".join(_call(node) for node in chain)


def _value(value: Any) -> str:
    # a list of chains, as the inputs of concat
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], list)
        and value[0]
        and isinstance(value[0][0], dict)
    ):
        return f"[{', '.join(written(chain) for chain in value)}]"
    if isinstance(value, dict) and "payload" in value:  # a function
        return str(value["name"])
    return repr(value)
