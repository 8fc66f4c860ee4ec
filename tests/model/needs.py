"""What nobody needs is not computed and cannot fail: routes without the work that leads nowhere."""

from __future__ import annotations

from dataclasses import replace

from . import annotations, audio, augment, colours, components, geometry, operators, parser

ON_ONE_COMPONENT = (
    "decode_image", "random_resized_crop", "resize", "center_crop", "random_crop", "random_flip",
    "normalize", "cast", "transpose_image", "tokenize", *components.ON_ONE, *geometry.OPERATORS,
    *colours.NAMES, *augment.NAMES, *audio.ON_ONE,
)  # fmt: skip


def names(text: str) -> set[str]:
    return parser.names(parser.Parser(str(text)).parse())


def touched(node: dict) -> set[str]:
    """What an operator in a list of one_of or maybe reads or writes."""
    read = set().union(*(names(text) for text in node.get("set", {}).values()))
    return read | set(node.get("set", {})) | ({node["component"]} if "component" in node else set())


def before(node, needed: set[str]) -> tuple[set[str], object]:
    """The components needed before a node when `needed` are needed after it, and the node without what
    nobody needs (None: all of it).
    """
    attrs, bound = node.attrs, node.bound
    moving = node.name in annotations.MOVING and [name for _, name in annotations.of(attrs)]
    if moving or node.name == "sanitize_boxes":
        labels = attrs.get("labels", [])
        others = moving or ([labels] if isinstance(labels, str) else labels)
        wanted = needed & {attrs["component"], *others}
        if not wanted:
            return needed, None
        bound = operators.bind(node.name, attrs, bound.before, wanted)
        # the operator runs, so all that it reads is needed
        return needed | {attrs["component"], *others}, replace(node, bound=bound)
    if node.name in ("one_of", "maybe"):
        changed = {
            name for nodes in operators.lists_of(node.name, attrs) for n in nodes for name in touched(n)
        }
        if not changed & needed:
            return needed, None
        return (needed | changed) & set(bound.before), node
    if node.name in ON_ONE_COMPONENT:
        return needed, node if attrs["component"] in needed else None
    if node.name == "decode_audio":
        wanted = needed & {attrs["component"], attrs["sample_rate"]}
        if not wanted:
            return needed, None
        bound = operators.decode_audio(attrs, bound.before, wanted)
        return (needed - wanted) | {attrs["component"]}, replace(node, bound=bound)
    if node.name == "parse_example":
        features = {name: f for name, f in attrs["features"].items() if name in needed}
        attrs = {**attrs, "features": features}
        pruned = operators.parse_example(attrs, {attrs["component"]: None})
        return ({attrs["component"]} if features else set()), replace(
            node, bound=pruned
        ) if features else None
    if node.name in ("filter_function", "flat_map", "unbatch") or node.name == "map" and needed:
        return set(bound.before) | (needed if node.name == "filter_function" else set()), node
    if node.name == "pack":
        return {attrs["component"]}, node
    if node.name == "map":  # nobody needs what it returns
        return needed, None
    if node.name == "assign":
        kept = {name: text for name, text in attrs["set"].items() if name in needed}
        read = set().union(*(names(text) for text in attrs["set"].values())) if kept else set()
        return (needed - set(kept)) | read, replace(node, bound=operators.assign({"set": kept}, bound.before))
    if node.name == "enumerate":
        return needed - {attrs["name"]}, node
    if node.name in components.JOINS:
        if attrs["name"] not in needed:
            return needed, None
        return (needed - {attrs["name"]}) | set(attrs["components"]), node
    if node.name == "rename":
        back = {new: old for old, new in attrs["names"].items()}
        return {back.get(name, name) for name in needed}, node
    if node.name == "resample":
        return needed | {attrs["component"]}, node
    for key in ("where", "length", "key"):
        if key in attrs:
            return needed | names(attrs[key]), node
    return needed, node


def prune(route: list, source: set[str], needed: set[str] | None = None) -> tuple[list, set[str]]:
    """The route with only what is needed, and what is needed of the source; `needed` (None: all) is needed
    behind it.
    """
    bound = [node.bound for node in route if node.bound]
    if needed is None:
        needed = set(bound[-1].types) if bound else set(source)
    kept = []
    for node in reversed(route):
        if node.bound:
            needed, node = before(node, needed)
        if node:
            kept.append(node)
    return kept[::-1], needed
