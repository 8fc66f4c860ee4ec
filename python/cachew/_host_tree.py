"""Structures: dicts in dicts, and tuples. Components are flat, and named by their path in the structure: the
value `s["a"]["x"]` is the component "a.x", item 0 of a tuple `s["a"]` is "a.0".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def flat(structure: Any, is_inside: Callable[[str, Any], bool]) -> dict[str, Any]:
    """The values of a structure by path. is_inside(path, value): whether the value is itself a structure,
    whose values are wanted, rather than one value. It is asked for all values but the structure itself.
    """
    found: dict[str, Any] = {}

    def add(begin: str, values: Any) -> None:
        items = values.items() if hasattr(values, "keys") else ((str(i), v) for i, v in enumerate(values))
        for key, value in items:
            path = f"{begin}{key}" if begin else key
            if isinstance(path, str) and is_inside(path, value):
                add(f"{path}.", value)
            elif path in found:
                raise ValueError(f'"{path}" is there twice')
            else:
                found[path] = value

    add("", structure)
    return found


def nest(components: Mapping[str, Any]) -> Any:
    """The structure of components, such as an element or a batch, by their names: the component "a.x" becomes
    the value `s["a"]["x"]` of the result. A dict with the keys "0", "1", ... becomes a tuple. Values are not
    copied.

    Raises ValueError if one name is the beginning of another, such as "a" and "a.x".
    """
    tree: dict[str, Any] = {}
    values = {"": tree}
    for name, value in components.items():
        at = tree
        *begin, last = name.split(".")
        for i, key in enumerate(begin):
            path = ".".join(begin[: i + 1])
            if path in components:
                raise ValueError(
                    f'"{path}" is a component, and so is "{name}": expected no component inside another'
                )
            if key not in at:
                at[key] = values[path] = {}
            at = at[key]
        at[last] = value
    return _with_tuples(tree, "", set(values))


def _with_tuples(tree: dict[str, Any], path: str, inner: set[str]) -> Any:
    made = {
        key: _with_tuples(value, inside, inner) if (inside := f"{path}.{key}".lstrip(".")) in inner else value
        for key, value in tree.items()
    }
    if made and made.keys() == {str(i) for i in range(len(made))}:
        return tuple(made[str(i)] for i in range(len(made)))
    return made
