"""Placement: what holds on every board, and the trace of the demonstration figure."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.tiers import policy
from archonctl.tiers.policy import expected_uses, in_order, make_room, place
from archonctl.tiers.values import (
    HIGH_WATER,
    Action,
    Board,
    Decision,
    Item,
    Placement,
    Reason,
    StepKind,
    Tier,
    high_water,
)

NAMES = ("hbm", "dram", "cxl", "disk")
MAYBE_SIZE = st.one_of(st.none(), st.integers(0, 400))


@st.composite
def boards(draw: st.DrawFn, known: bool = False) -> Board:
    """Small tiers and conversations of about their size, any figure of which may be unknown."""
    size = st.integers(0, 400) if known else MAYBE_SIZE
    names = NAMES[: draw(st.integers(1, 4))]
    tiers = tuple(
        Tier(
            name,
            is_memory=name != "disk",
            capacity_bytes=draw(st.integers(0, 1000) if known else st.one_of(st.none(), st.integers(0, 1000))),
            bandwidth_bytes_per_s=draw(st.sampled_from([1.0, 50.0, 1e6] if known else [None, 0.0, 1.0, 50.0, 1e6])),
            latency_s=draw(st.sampled_from([0.0, 1.0] if known else [None, 0.0, 1.0])),
            other_bytes=draw(st.integers(0, 200)),
            places=draw(st.one_of(st.none(), st.integers(0, 4))),
        )
        for name in names
    )
    items = tuple(
        Item(
            f"c{n}",
            draw(st.sampled_from(names)),
            draw(size),
            draw(size),
            draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
            idle_s=draw(st.sampled_from([0.0, 5.0, 600.0])),
            in_use=draw(st.booleans()) if draw(st.booleans()) else False,
            compressed_bytes=draw(MAYBE_SIZE),
        )
        for n in range(draw(st.integers(0, 8)))
    )
    rate = draw(st.sampled_from([0.1, 1.0] if known else [None, 0.1, 1.0]))
    return Board(tiers, items, rate, draw(st.sampled_from([0.8, 0.5, 1.0])))


def after(board: Board, decisions: Sequence[Decision]) -> Board:
    """The board once these were carried out."""
    moved = {each.item.id: each for each in decisions if each.moves}
    kept = []
    for item in board.items:
        decision = moved.get(item.id)
        if decision is None:
            kept.append(item)
        elif decision.to_tier is not None:
            size = item.bytes if decision.bytes_after is None else decision.bytes_after
            left = None if decision.action is Action.COMPRESS_DEMOTE else item.compressed_bytes
            kept.append(replace(item, tier=decision.to_tier, bytes=size, compressed_bytes=left))
    return replace(board, items=tuple(kept))


def _carried_out(board: Board, placement: Placement) -> Board:
    """Carry the steps out one by one, on copies, and check every state on the way."""
    copies: dict[str, dict[str, int]] = {item.id: {item.tier: item.bytes or 0} for item in board.items}
    verified: set[tuple[str, str]] = set()
    last = {each.item.id: each.to_tier for each in placement.moves}
    for step in placement.steps:
        if step.kind is StepKind.STAGE:
            copies[step.item][step.tier] = step.bytes
            tier = board.tier(step.tier)
            lies = tier.other_bytes + sum(held.get(step.tier, 0) for held in copies.values())
            assert tier.capacity_bytes is not None
            assert lies <= tier.capacity_bytes
        elif step.kind is StepKind.VERIFY:
            assert step.tier in copies[step.item]
            verified.add((step.item, step.tier))
        else:
            target = last[step.item]
            assert target is None or (step.item, target) in verified
            del copies[step.item][step.tier]
    end = after(board, placement.decisions)
    assert {item.id: {item.tier: item.bytes or 0} for item in end.items} == {k: v for k, v in copies.items() if v}
    return end


@given(boards())
def test_steps_exceed_no_capacity_and_drop_nothing_before_its_copy_is_verified(board: Board) -> None:
    placement = place(board)
    assert sorted(each.item.id for each in placement.decisions) == sorted(item.id for item in board.items)
    _carried_out(board, placement)
    assert place(board) == placement, "the same board, the same decisions"


@given(boards())
def test_what_is_unknown_or_in_use_is_never_moved(board: Board) -> None:
    for each in place(board).moves:
        item = each.item
        assert not item.in_use
        assert item.bytes is not None
        assert board.recompute_s(item) is not None
        if each.to_tier is not None:
            target = board.tier(each.to_tier)
            assert target.capacity_bytes is not None
            assert target.transfer_s(item.bytes) is not None


@given(boards())
def test_only_a_tier_above_its_mark_loses_anything_downwards(board: Board) -> None:
    """Or one in which what is reused more takes the place of what is reused less."""
    placement = place(board)
    displaced_into = {each.to_tier for each in placement.moves if each.reason is Reason.DISPLACES_COLDER}
    promoted_into = {each.to_tier for each in placement.moves if each.action is Action.PROMOTE}
    for each in placement.moves:
        tier = board.tier(each.item.tier)
        if each.action is not Action.PROMOTE and tier.name not in displaced_into:
            assert _above(board, tier)
    assert not promoted_into & {tier.name for tier in board.tiers if _above(after(board, placement.decisions), tier)}


@given(boards())
def test_an_eviction_says_that_retaining_costs_more_or_finds_no_room(board: Board) -> None:
    for each in place(board, promote=False).moves:
        if each.action is not Action.EVICT:
            continue
        trips = each.round_trip_s.values()
        worth = [trip for trip in trips if trip is not None and trip < (each.recompute_s or 0)]
        if each.reason is Reason.NO_COLDER_TIER:
            assert not trips
        else:
            assert bool(worth) is (each.reason is Reason.NO_ROOM)
            assert None not in trips, "a tier of unknown speed might have taken it"


@given(boards(known=True))
def test_a_second_look_sweeps_nothing_and_looks_settle(board: Board) -> None:
    first = place(board)
    second_board = after(board, first.decisions)
    second = place(second_board)
    if not first.pressed:
        assert all(each.action is Action.PROMOTE for each in second.moves)
        assert not place(after(second_board, second.decisions)).moves
    swept = after(board, place(board, promote=False).decisions)
    assert not place(swept, promote=False).moves


def test_what_may_go_up_from_a_tier_above_its_mark_does_not_go_down_first() -> None:
    tiers = tuple(Tier(name, name != "disk", 100, 1e6, 0.0) for name in ("hbm", "dram", "disk"))
    items = (Item("reused", "dram", 60, 60, 3.0), Item("other", "dram", 40, 40, 1.0))
    moves = place(Board(tiers, items, 1.0)).moves
    assert [(each.item.id, each.action, each.to_tier) for each in moves] == [("reused", Action.PROMOTE, "hbm")]


@given(boards(known=True))
def test_a_board_of_known_figures_is_under_its_marks_unless_what_is_in_use_presses_it(board: Board) -> None:
    placement = place(board)
    end = after(board, placement.decisions)
    for tier in end.tiers:
        if _above(end, tier):
            assert tier.name in placement.pressed
            assert all(item.in_use for item in end.items if item.tier == tier.name)


@given(boards(known=True), st.integers(1, 900))
def test_room_that_cannot_be_had_moves_nothing_and_room_that_can_is_there_afterwards(board: Board, size: int) -> None:
    placement = make_room(board, "hbm", size)
    end = _carried_out(board, placement)
    hbm = board.tiers[0]
    if placement.pressed:
        assert not placement.moves
    else:
        assert hbm.capacity_bytes is not None
        assert end.used_bytes("hbm") + size <= hbm.capacity_bytes * board.high_water
        assert hbm.places is None or sum(item.tier == "hbm" for item in end.items) < hbm.places


@given(boards(known=True))
def test_what_is_reused_more_is_not_thrown_away_while_what_is_reused_less_stays_beside_it(board: Board) -> None:
    """Unless the lesser would not have made enough room, or is in use."""
    placement = make_room(board, "hbm", 1)
    left = {each.item.id for each in placement.moves if each.item.tier == "hbm"}
    beside = [item for item in in_order(board.items) if item.tier == "hbm" and not item.in_use]
    for less, more in itertools.pairwise(beside):
        if more.id in left and less.id not in left:
            assert (less.bytes or 0) <= (more.bytes or 0)


@given(st.one_of(st.none(), st.text(), st.floats(), st.integers(), st.just([]), st.just("NaN"), st.just("80%")))
def test_a_nonsense_mark_disables_nothing(value: object) -> None:
    share = high_water(value)
    assert 0 < share <= 1
    assert share == HIGH_WATER or share == float(value)  # type: ignore[arg-type]


def _above(board: Board, tier: Tier) -> bool:
    count = sum(item.tier == tier.name for item in board.items)
    if tier.places is not None and count > tier.places:
        return True
    return tier.capacity_bytes is not None and board.used_bytes(tier.name) > int(tier.capacity_bytes * board.high_water)


def _tiers(**capacity: int | None) -> tuple[Tier, ...]:
    return tuple(
        Tier(name, name != "disk", size, {"hbm": 1e12, "dram": 2e10}.get(name, 1e9), 0.001)
        for name, size in capacity.items()
    )


@pytest.mark.parametrize(
    ("item", "tiers", "action", "reason"),
    [
        (Item("c", "hbm", 90, 500, 1), _tiers(hbm=100, dram=1000), Action.DEMOTE, Reason.RETAIN_CHEAPER),
        (Item("c", "hbm", 90, 500, 1), _tiers(hbm=100, disk=1000), Action.SPILL, Reason.RETAIN_CHEAPER),
        (Item("c", "hbm", 90, 1, 1), _tiers(hbm=100, dram=1000), Action.EVICT, Reason.RECOMPUTE_CHEAPER),
        (Item("c", "hbm", 90, 500, 1), _tiers(hbm=100, dram=50), Action.EVICT, Reason.NO_ROOM),
        (Item("c", "hbm", 90, 500, 1), _tiers(hbm=100), Action.EVICT, Reason.NO_COLDER_TIER),
        (Item("c", "hbm", 90, 500, 1), _tiers(hbm=100, dram=None), Action.KEEP, Reason.UNKNOWN_TARGET),
        (Item("c", "hbm", 90, None, 1), _tiers(hbm=100, dram=1000), Action.KEEP, Reason.UNKNOWN_RECOMPUTE),
        (Item("c", "hbm", 70, 500, 1), _tiers(hbm=None, dram=1000), Action.KEEP, Reason.UNKNOWN_CAPACITY),
        (Item("c", "hbm", 70, 500, 1), _tiers(hbm=100, dram=1000), Action.KEEP, Reason.UNDER_MARK),
        (Item("c", "hbm", 90, 500, 1, in_use=True), _tiers(hbm=100, dram=1000), Action.KEEP, Reason.IN_USE),
        (
            Item("c", "hbm", 90, 500, 1, compressed_bytes=30),
            _tiers(hbm=100, dram=50),
            Action.COMPRESS_DEMOTE,
            Reason.ONLY_COMPRESSED_FITS,
        ),
        (Item("c", "dram", 10, 500, 1), _tiers(hbm=100, dram=1000), Action.PROMOTE, Reason.REUSE_AND_ROOM),
        (Item("c", "dram", 10, 500, 0), _tiers(hbm=100, dram=1000), Action.KEEP, Reason.UNDER_MARK),
    ],
)
def test_each_situation_has_its_action_and_its_reason(
    item: Item, tiers: tuple[Tier, ...], action: Action, reason: Reason
) -> None:
    decision = place(Board(tiers, (item,), 0.0001)).of("c")
    assert (decision.action, decision.reason) == (action, reason)


def test_a_store_of_thousands_whose_quota_was_cut_is_decided_on_in_few_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each move is reckoned with in constant time: the guard serves nobody while it decides."""
    items = tuple(Item(f"c{n}", "dram", 100, 1000, float(n % 97), float(n % 89)) for n in range(4096))
    tiers = (Tier("dram", True, 4096 * 50, 1e9, 0.0), Tier("disk", False, 4096 * 20, 1e9, 0.0))
    asked = Counter[str]()
    used, stuck = Board.used_bytes, policy._Work._stuck

    def counted(name: str, done: Any) -> Any:
        def call(*words: Any) -> Any:
            asked[name] += 1
            return done(*words)

        return call

    monkeypatch.setattr(Board, "used_bytes", counted("used", used))
    monkeypatch.setattr(policy._Work, "_stuck", counted("stuck", stuck))
    assert len(place(Board(tiers, items, 0.01), promote=False).moves) > 2000
    assert asked["used"] == len(tiers)
    assert asked["stuck"] < 8 * len(items)


def test_old_conversations_on_a_full_disk_give_way_to_one_that_is_reused() -> None:
    tiers = (replace(_tiers(hbm=100)[0], places=1), *_tiers(disk=100))
    items = (Item("new", "hbm", 60, 9000, 2.0), Item("old", "disk", 70, 9000, 0.1))
    placement = make_room(Board(tiers, items, 0.01), "hbm", 10)
    assert [(each.item.id, each.action, each.reason) for each in placement.moves] == [
        ("old", Action.EVICT, Reason.NO_COLDER_TIER),
        ("new", Action.SPILL, Reason.DISPLACES_COLDER),
    ]


def test_reuse_counts_less_with_every_half_life_of_silence() -> None:
    assert expected_uses(4, 0) == 4
    assert expected_uses(4, 100, half_life_s=50) == 1
    assert expected_uses(4, 1e12) == 0 == expected_uses(-3, 5)


# --- the demonstration: one shared prefix under pressure that grows, with tiers and without ---------------------------

PREFIX_TOKENS = 4_000
PREFIX_BYTES = PREFIX_TOKENS * 29_952 // 4 * 2
"""29.25 KiB a page of 4 tokens, on each of 2 cards: the KV law of the archon endpoint at fp8."""
PREFILL_S_PER_TOKEN = 1 / 3_126
LADDER = {
    "hbm": (2e12, True),
    "dram": (3e11, True),
    "numa_far": (2e11, True),
    "cxl": (6.4e10, True),
    "disk": (7e9, False),
}
BLOCK = PREFIX_BYTES
CAPACITY = 10 * BLOCK
LIVE = 8
"""Blocks of a tier that conversations at work keep, up to the mark; the hottest tier has them in every gap."""
TURNS = 8
GAPS: tuple[tuple[str, ...], ...] = (
    ("hbm",),
    ("hbm",),
    ("hbm", "dram"),
    ("hbm", "dram"),
    ("hbm", "dram", "numa_far"),
    ("hbm", "dram", "numa_far"),
    ("hbm", "dram", "numa_far", "cxl"),
    ("hbm", "dram", "numa_far", "cxl", "disk"),
)
"""After each turn that shares the prefix: the tiers that are filled to the mark by what is at work there. Short
requests pass through what is left of the hottest one."""


def _with_tiers() -> tuple[int, list[Decision]]:
    """Tokens of the prefix that are prefilled again, and what was decided about it."""
    tiers = tuple(Tier(name, memory, CAPACITY, bandwidth, 1e-4) for name, (bandwidth, memory) in LADDER.items())
    board = Board(tiers, (Item("prefix", "hbm", PREFIX_BYTES, PREFIX_TOKENS, 1),), PREFILL_S_PER_TOKEN)
    again, decided = 0, list[Decision]()
    for turn, gap in enumerate(GAPS):
        if turn and not board.items:
            again += PREFIX_TOKENS
            board = replace(board, items=(Item("prefix", "hbm", PREFIX_BYTES, PREFIX_TOKENS, 1),))
        filled = tuple(replace(tier, other_bytes=LIVE * BLOCK if tier.name in gap else 0) for tier in board.tiers)
        board = replace(board, tiers=filled)
        placement = place(board)
        decided += placement.moves
        board = _carried_out(board, placement)
    return again, decided


def _blind_lru() -> int:
    """The same turns and gaps for a cache of the hottest tier alone that drops what was used longest ago."""
    held: OrderedDict[str, int] = OrderedDict()
    missed: Counter[str] = Counter()

    def use(name: str) -> None:
        if name not in held:
            missed[name] += 1
        held[name] = BLOCK
        held.move_to_end(name)
        while sum(held.values()) > CAPACITY:
            held.popitem(last=False)

    for turn, _ in enumerate(GAPS):
        use("prefix")
        for n in range(LIVE):
            use(f"live {n}")
        for n in range(CAPACITY // BLOCK - LIVE):
            use(f"short {turn}.{n}")
    return (missed["prefix"] - 1) * PREFIX_TOKENS


def test_a_prefix_goes_down_tier_by_tier_and_is_never_prefilled_again() -> None:
    again, decided = _with_tiers()
    assert [str(each.action) for each in decided] == ["demote", "demote", "demote", "spill", "evict"]
    assert [each.to_tier for each in decided] == ["dram", "numa_far", "cxl", "disk", None]
    assert len(GAPS) == TURNS
    assert (again, _blind_lru()) == (0, 28_000)
