"""One position's way through its operators, to none, one or several elements: docs/semantics.md, sections 3,
6 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from . import philox
from .dtypes import RecordError, RunError, Value
from .plan import FILTERS, KEYED, Node, Plan, Position, Window
from .zipped import Zipped

REPLACED = 1
MISSING = "missing"  # a failed element that keeps its place
DROPPED = "dropped"
SIEVES = (*FILTERS, *KEYED)  # they remove what failed before them


@dataclass
class Element:
    components: dict[str, Value]
    record: str
    eid: int
    flags: int = 0
    key: int = 0  # bucket
    # what ends the run if the element is delivered: a dropped remainder is not computed to the end
    error: RunError | None = None


class Elements:
    """The elements of one run of a pipeline under a seed; records that failed are counted."""

    def __init__(self, plan: Plan, seed: int):
        self.plan = plan
        self.seed = seed
        self.failed = 0

    def draw(self, node: Node, element: int, epoch: int) -> philox.Draw:
        seed = self.seed
        if node.freeze:
            seed = node.freeze["seed"] if node.freeze["seed"] >= 0 else seed
            epoch = epoch // node.freeze["reuse"] if node.freeze["reuse"] else 0
        return philox.Draw(philox.draw_key(seed, epoch, node.salt), element)

    def identify(self, position: Position, ordinals: tuple[int, ...] = ()):
        """The record, the element's id as printed and as a number; `ordinals` has what a flat_map added."""
        record = self.plan.sources[position.leaf].records[position.row]
        ordinals = (*position.ordinals, *ordinals)
        printed = f"{record.file_key:016x}:{record.row}" + "".join(f".{o}" for o in ordinals)
        return record, printed, philox.element_id(record.file_key, record.row, ordinals)

    def element(self, position: Position, epoch: int) -> dict[str, Value]:
        """What the source gives."""
        source = self.plan.sources[position.leaf]
        record, _, eid = self.identify(position)
        if not isinstance(source, Zipped):
            return source.element(record)
        counts = [n.attrs["count"] for n in self.plan.routes[position.leaf] if n.name == "repeat"]
        passes = list(zip(position.ordinals, counts))

        def draw(node: Node, ordinals: tuple[int, ...] = ()) -> philox.Draw:
            return self.draw(node, self.identify(position, ordinals)[2] if ordinals else eid, epoch)

        return source.zipped(record.row, passes, self.seed, epoch, draw)

    def compute(self, position: Position, epoch: int) -> Element | str:
        """An element through all maps and filters, without counting: the element, or DROPPED. Raises
        RecordError.
        """
        _, printed, eid = self.identify(position)
        components, key = self.element(position, epoch), 0
        for node in self.plan.routes[position.leaf]:
            if node.bound and node.name in FILTERS:
                if not node.bound.apply(components, self.draw(node, eid, epoch)):
                    return DROPPED
            elif node.name in KEYED:
                key = node.bound.apply(components, None)
            elif node.bound:
                components = node.bound.apply(components, self.draw(node, eid, epoch))
        return Element(components, printed, eid, 0, key)

    def replacement(self, position: Position, window: Window, epoch: int, wrong: RunError) -> Element:
        draw = philox.Draw(philox.draw_key(self.seed, epoch, "replace/0"), self.identify(position)[2])
        for k in range(64):
            try:
                found = self.compute(window[philox.integer(draw.word(4 * k), len(window))], epoch)
            except RecordError:
                continue
            if found is not DROPPED:
                found.flags |= REPLACED
                return found
        raise wrong

    def of(self, group: list[tuple[Position, Window]], epoch: int, counts: dict) -> Iterator[Element | str]:
        """What becomes of positions: Elements, and MISSING for each that leaves an empty place."""
        ways = [Way(self, position, window, epoch, counts) for position, window in group]
        route = ways[0].route
        at = next((i for i, node in enumerate(route) if node.name == "pack"), None)
        if at is None:
            for way in ways:
                yield from way.elements()
        else:
            sequences = [tokens for way in ways for tokens in way.elements()]
            yield from ways[0].several(at, route[at].bound.rows(sequences))


@dataclass
class Traveller:
    """An element on its way."""

    components: dict[str, Value] | None
    ordinals: tuple[int, ...] = ()  # what the last flat_map added to its id
    missing: bool = False
    result: Element | None = None  # of one that failed and doesn't leave an empty place
    key: int = 0


@dataclass
class Way:
    run: Elements
    position: Position
    window: Window
    epoch: int
    counts: dict  # what arrived at each operator that counts
    given: dict[int, int] = field(default_factory=dict)  # by each flat_map so far

    def __post_init__(self):
        self.route = self.run.plan.routes[self.position.leaf]
        self.last_sieve = max(
            (i for i, n in enumerate(self.route) if n.counting or n.name in SIEVES), default=-2
        )

    def elements(self) -> Iterator[Element | str]:
        if self.beyond(0):
            return
        traveller = Traveller(None)
        traveller.components = self.attempt(
            traveller, -1, lambda: self.run.element(self.position, self.epoch)
        )
        yield from self.onward(0, traveller)

    def onward(self, start: int, t: Traveller) -> Iterator[Element | str]:
        """What becomes of an element that stands before route[start]."""
        for at, node in enumerate(self.route[start:], start):
            if node.name == "enumerate":
                number = self.number(node, self.passes(at))
                if not t.missing and not t.result:
                    t.components = node.bound.apply(t.components, number)
            elif node.name == "take_while":
                if t.missing or t.result or not self.lasts(node, t, at):
                    if not t.result:
                        return
            elif node.counting:
                if not self.arrive(node, self.passes(at)):
                    return
            elif node.bound and not t.result:
                if node.name in SIEVES and t.missing:
                    return
                if node.name in KEYED:
                    t.key = self.attempt(t, at, lambda node=node: node.bound.apply(t.components, None))
                elif not t.missing:
                    draw = self.run.draw(node, self.run.identify(self.position, t.ordinals)[2], self.epoch)
                    result = self.attempt(
                        t, at, lambda node=node, draw=draw: node.bound.apply(t.components, draw)
                    )
                    if node.name == "pack":
                        if not t.missing:
                            yield result
                        return
                    if node.name in ("flat_map", "unbatch"):
                        yield from self.several(at, result or [])
                        return
                    if node.name not in FILTERS:
                        t.components = result
                    elif result is False:
                        return
                if node.name in SIEVES and t.missing:
                    return
        _, printed, eid = self.run.identify(self.position, t.ordinals)
        yield t.result or (MISSING if t.missing else Element(t.components, printed, eid, 0, t.key))

    def several(self, at: int, given: list[dict[str, Value]]) -> Iterator[Element | str]:
        """The elements that the flat_map at route[at] gave, numbered among all that it gives of the
        record.
        """
        for components in given:
            number = self.given.get(at, 0)
            self.given[at] = number + 1
            if not self.beyond(at + 1):
                yield from self.onward(at + 1, Traveller(components, (number,)))

    def attempt(self, t: Traveller, at: int, step):
        """What the step gives; None where it fails, and then t says what is to become of the element."""
        plan = self.run.plan
        try:
            return step()
        except RecordError as error:
            self.run.failed += 1
            if plan.on_error == "skip":
                t.missing = True
                return None
            _, printed, eid = self.run.identify(self.position, t.ordinals)
            wrong = RunError(f"{printed}: {error}")
            try:
                if plan.on_error == "raise":
                    raise wrong from error
                t.result = self.run.replacement(self.position, self.window, self.epoch, wrong)
            except RunError:
                if at <= self.last_sieve:
                    raise
                t.result = Element({}, printed, eid, error=wrong)
        return None

    # ---- operators that count ----

    def passes(self, at: int) -> tuple[int, ...]:
        """The passes of the repeats from route[at] on: counting starts anew in each."""
        return self.position.ordinals[sum(n.name == "repeat" for n in self.route[:at]) :]

    def arrive(self, node: Node, passes: tuple[int, ...]) -> bool:
        """Whether an element goes on."""
        arrived = self.counts.get((node, passes), 0)
        self.counts[node, passes] = arrived + 1
        return arrived < node.attrs["count"] if node.name == "take" else arrived >= node.attrs["count"]

    def lasts(self, node: Node, t: Traveller, at: int) -> bool:
        """Whether an element passes a take_while, which it ends if not."""
        holds = self.attempt(t, at, lambda: node.bound.apply(t.components, None))
        if holds is False:
            self.counts[node, self.passes(at)] = 1
        return bool(holds)

    def number(self, node: Node, passes: tuple[int, ...]) -> int:
        """The place of an element among those that arrive."""
        if not node.counting:
            return dict(self.position.places)[node.salt]
        number = self.counts.get((node, passes), 0)
        self.counts[node, passes] = number + 1
        return number

    def beyond(self, start: int) -> bool:
        """Whether a take from route[start] on, which an element would pass, has all it wants, or a take_while
        has ended.
        """
        return any(
            node.counting
            and node.name in ("take", "take_while")
            and self.counts.get((node, self.passes(at)), 0) >= node.attrs.get("count", 1)
            for at, node in enumerate(self.route[start:], start)
        )
