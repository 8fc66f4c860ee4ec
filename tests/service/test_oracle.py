"""The delivery oracle's own tests: made-up logs with one thing wrong, each of which it must find and name."""

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import oracle  # noqa: E402
from oracle import Generation, Job, Line, Part  # noqa: E402

BATCHES, SIZE, EPOCHS = 11, 3, 2


def line(epoch, g, rank=0, padding_of=None):
    """What a sound service logs. Batch g of epoch e has the records e*1000 + 3g ..."""
    source = g if padding_of is None else padding_of
    records = tuple(f"00000000000000ab:{source * SIZE + i}" for i in range(SIZE))
    return Line(
        epoch,
        g,
        rank,
        SIZE,
        (2 if padding_of is not None else 0,) * SIZE,
        records,
        hash((epoch, g, records)) & oracle.MASK128,
    )


@pytest.fixture
def local():
    return oracle.Local([line(e, g) for e in range(EPOCHS) for g in range(BATCHES)])


def sound(local, world, start=None):
    """Per rank what it gets."""
    return [
        [
            line(e.epoch, e.g, rank, e.source.g if e.padding else None)
            for e in oracle.expected(local, start, rank, world, EPOCHS)
        ]
        for rank in range(world)
    ]


def result(lines):
    return {"digest": f"{sum(x.hash for x in lines if not x.padding) & oracle.MASK128:032x}"}


def job(ranks, order="exact", guarantee="exactly-once"):
    return Job(
        order,
        guarantee,
        [Generation(len(ranks), None, [[Part(lines, result=result(lines))] for lines in ranks])],
        EPOCHS,
    )


def kinds(job, local):
    return {p.split(":")[0] for p in oracle.check(job, local)}


@pytest.mark.parametrize("world", [1, 2, 3, 4, 11, 12])
@pytest.mark.parametrize(
    ("order", "guarantee"), [("exact", "exactly-once"), ("any", "exactly-once"), ("any", "at-most-once")]
)
def test_sound_logs_pass(local, world, order, guarantee):
    assert oracle.check(job(sound(local, world), order, guarantee), local) == []


def test_what_a_rank_gets_is_what_semantics_say(local):
    """Section 8, by hand: 11 batches, 4 ranks, the last round has 3; on from g 6 with 3 ranks: rounds
    6-8, 9-11.
    """
    assert [(e.g, e.padding) for e in oracle.expected(local, None, 3, 4, 1)] == [
        (3, False),
        (7, False),
        (11, True),
    ]
    assert oracle.expected(local, None, 3, 4, 1)[-1].source.g == 0
    assert [(e.g, e.padding) for e in oracle.expected(local, (0, 6), 2, 3, 1)] == [(8, False), (11, True)]
    assert [(e.epoch, e.g) for e in oracle.expected(local, (1, 9), 1, 2, 2)] == [(1, 10)]
    assert [(e.epoch, e.g) for e in oracle.expected(local, (0, 10), 0, 3, 2)][:2] == [(0, 10), (1, 0)]


def lost(ranks):
    del ranks[1][2]


def lost_at_the_end(ranks):
    del ranks[1][-1]


def repeated(ranks):
    ranks[0].insert(3, ranks[0][2])


def swapped(ranks):
    ranks[0][1], ranks[0][2] = ranks[0][2], ranks[0][1]


def other_contents(ranks):
    ranks[1][2] = dataclasses.replace(ranks[1][2], hash=ranks[1][2].hash ^ 1)


def other_records(ranks):
    ranks[1][2] = dataclasses.replace(ranks[1][2], records=("00000000000000ab:99", *ranks[1][2].records[1:]))


def not_flagged(ranks):
    at = next(i for i, x in enumerate(ranks[1]) if x.padding)
    ranks[1][at] = dataclasses.replace(ranks[1][at], flags=(0,) * SIZE)


def wrongly_flagged(ranks):
    ranks[0][0] = dataclasses.replace(ranks[0][0], flags=(2,) * SIZE)


def half_flagged(ranks):
    at = next(i for i, x in enumerate(ranks[1]) if x.padding)
    ranks[1][at] = dataclasses.replace(ranks[1][at], flags=(2, 0, 2))


def other_padding(ranks):
    at = next(i for i, x in enumerate(ranks[1]) if x.padding)
    ranks[1][at] = dataclasses.replace(ranks[1][at], records=line(0, 5).records)


def of_another_rank(ranks):
    ranks[0][2] = dataclasses.replace(line(0, 5), rank=0)


def replaced_flag_lost(ranks):
    ranks[0][0] = dataclasses.replace(ranks[0][0], flags=(1, 0, 0))


def goes_on_behind_the_end(ranks):
    ranks[0].append(line(EPOCHS, 0))


def an_epoch_too_few(ranks):
    for lines in ranks:
        lines[:] = [x for x in lines if x.epoch == 0]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lost, "lost"),
        (lost_at_the_end, "lost"),
        (repeated, "repeated"),
        (swapped, "order"),
        (other_contents, "hash"),
        (other_records, "records"),
        (not_flagged, "padding"),
        (wrongly_flagged, "padding"),
        (half_flagged, "padding"),
        (other_padding, "padding"),
        (of_another_rank, "not its own"),
        (replaced_flag_lost, "flags"),
        (goes_on_behind_the_end, "too many"),
        (an_epoch_too_few, "lost"),
    ],
)
def test_exact_order_finds(local, wrong, kind):
    ranks = sound(local, 2)
    wrong(ranks)
    assert kind in kinds(job(ranks), local)


def test_the_message_names_batch_rank_and_records(local):
    ranks = sound(local, 2)
    lost(ranks)
    said = "\n".join(oracle.check(job(ranks), local))
    assert "rank 1 of 2" in said and "g 5 of epoch 0" in said and "00000000000000ab:15" in said


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(lost, "lost"), (repeated, "repeated"), (other_records, "records"), (an_epoch_too_few, "lost")],
)
def test_any_order_finds(local, wrong, kind):
    ranks = sound(local, 2)
    wrong(ranks)
    assert kind in kinds(job(ranks, "any"), local)


def test_any_order_allows_batches_in_another_order_within_an_epoch(local):
    ranks = sound(local, 2)
    swapped(ranks)
    assert oracle.check(job(ranks, "any"), local) == []
    assert kinds(job(ranks), local) == {"order"}
    last, first = len([x for x in ranks[0] if x.epoch == 0]) - 1, len([x for x in ranks[0] if x.epoch == 0])
    ranks[0][last], ranks[0][first] = ranks[0][first], ranks[0][last]
    assert kinds(job(ranks, "any"), local) == {"order"}


def test_any_order_finds_a_batch_that_comes_too_early(local, monkeypatch):
    monkeypatch.setattr(oracle, "ROUNDS_AHEAD", 3)
    ranks = sound(local, 1)
    ranks[0].insert(0, ranks[0].pop(2))
    assert oracle.check(job(ranks, "any"), local) == []
    ranks[0].insert(0, ranks[0].pop(3))
    assert kinds(job(ranks, "any"), local) == {"order"}


def test_any_order_goes_on_from_a_state_with_batches_handed_out_before_their_turn(local):
    """A rank that was killed after batches 0, 3 and 1, in this order, and whose state is that of the
    first two.
    """
    lines = sound(local, 1)[0]
    state = oracle.State((0, 1))
    state.handed = frozenset({(0, 3)})
    rest = [x for x in lines if x.g not in (0, 3) or x.epoch]
    parts = [Part([lines[0], lines[3], lines[1]]), Part(rest, start=state, result=result(rest))]
    assert oracle.check(Job("any", "exactly-once", [Generation(1, None, [parts])], EPOCHS), local) == []
    parts[1].lines.insert(2, lines[3])
    parts[1].result = result(parts[1].lines)
    assert "repeated" in kinds(Job("any", "exactly-once", [Generation(1, None, [parts])], EPOCHS), local)


def test_at_most_once_allows_gaps_and_nothing_twice(local):
    ranks = sound(local, 2)
    lost(ranks)
    lost_at_the_end(ranks)
    assert oracle.check(job(ranks, "any", "at-most-once"), local) == []
    ranks[0][4] = dataclasses.replace(ranks[0][4], records=ranks[0][1].records)
    assert kinds(job(ranks, "any", "at-most-once"), local) == {"repeated"}


# ---- kills ----


def killed(local, logged, state, world=1):
    """A rank killed after so many lines, whose state says what it says."""
    lines = sound(local, world)[0]
    rest = sound(local, world, state)[0]
    return [Part(lines[:logged]), Part(rest, start=state, result=result(rest))]


def test_a_killed_client_is_cut_at_the_state(local):
    for logged, state in ((7, (0, 7)), (7, (0, 4)), (11, (1, 0)), (15, (0, 9)), (3, None), (22, (2, 0))):
        assert (
            oracle.check(
                Job("exact", "exactly-once", [Generation(1, None, [killed(local, logged, state)])], EPOCHS),
                local,
            )
            == []
        ), (logged, state)


def test_a_state_ahead_of_the_log_loses_batches(local):
    assert "lost" in kinds(
        Job("exact", "exactly-once", [Generation(1, None, [killed(local, 7, (0, 8))])], EPOCHS), local
    )


def test_what_a_killed_part_logged_counts_even_if_it_is_done_again(local):
    parts = killed(local, 7, (0, 4))
    parts[0].lines[6] = dataclasses.replace(parts[0].lines[6], hash=5)
    assert "hash" in kinds(Job("exact", "exactly-once", [Generation(1, None, [parts])], EPOCHS), local)


def test_a_part_that_ends_early_and_says_it_is_done(local):
    parts = killed(local, 7, (0, 7))
    parts[1].lines.pop()
    parts[1].result = result(parts[1].lines)
    assert "lost" in kinds(Job("exact", "exactly-once", [Generation(1, None, [parts])], EPOCHS), local)


def test_a_digest_that_is_not_that_of_the_log(local):
    ranks = sound(local, 2)
    j = job(ranks)
    j.generations[0].ranks[0][0].result = {"digest": "0" * 32}
    assert "digest" in kinds(j, local)


def test_another_world_size_goes_on_from_one_state(local):
    first = Generation(2, None, [[Part(lines[:n])] for lines, n in zip(sound(local, 2), (4, 3))])
    second = Generation(
        3, (0, 6), [[Part(lines, start=(0, 6), result=result(lines))] for lines in sound(local, 3, (0, 6))]
    )
    assert oracle.check(Job("exact", "exactly-once", [first, second], EPOCHS), local) == []
    assert oracle.check(Job("any", "exactly-once", [first, second], EPOCHS), local) == []
    second.ranks[1][0].lines.insert(0, line(0, 5, 1))  # what was handed out before
    assert {"not its own", "digest"} & kinds(Job("exact", "exactly-once", [first, second], EPOCHS), local)
    assert {"not its own", "digest"} & kinds(Job("any", "exactly-once", [first, second], EPOCHS), local)


def test_a_rank_that_is_missing(local):
    ranks = sound(local, 3)
    assert "ranks" in kinds(
        Job("exact", "exactly-once", [Generation(3, None, [[Part(lines)] for lines in ranks[:2]])], EPOCHS),
        local,
    )


def test_a_log_that_is_cut_off_is_an_error(tmp_path):
    (tmp_path / "log").write_text('{"epoch":0,')
    with pytest.raises(ValueError, match="cut off"):
        oracle.read_log(tmp_path / "log")
