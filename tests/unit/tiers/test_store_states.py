"""Any order of staging, copying, dropping, restarting and damage: what counts is whole, and quotas hold."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from archonctl.tiers.store import StagingError, Store
from support.staged import FINGERPRINT, prefix, saved, specs

_QUOTA = 40_000
_PLACES = st.sampled_from(["dram", "disk"])


class Stores(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.made = specs(self.root, _QUOTA, 2 * _QUOTA)
        self.store = Store(self.made)
        self.contents: dict[str, bytes] = {}
        self.places: dict[str, set[str]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    @rule(target=ids, tokens=st.integers(0, 500), size=st.integers(0, 20_000))
    def save(self, tokens: int, size: int) -> str:
        id_, data = self.store.new_id(), saved(tokens, b"s" * size)
        if self.store.room_bytes("dram") < len(data):
            return id_
        (self.root / "dram" / f"{id_}.kv").write_bytes(data)
        self.store.adopt(id_, tokens, len(data), FINGERPRINT, prefix(f"conversation {id_}"))
        self.contents[id_], self.places[id_] = data, {"dram"}
        return id_

    @rule(id_=ids, source=_PLACES, to=_PLACES)
    def copy(self, id_: str, source: str, to: str) -> None:
        there = source in self.places.get(id_, set())
        fits = to in self.places.get(id_, set()) or self.store.room_bytes(to) >= len(self.contents.get(id_, b""))
        try:
            self.store.copy(id_, source, to)
        except StagingError:
            assert not (there and fits)
        else:
            assert there
            assert fits
            self.places[id_].add(to)

    @rule(id_=ids, place=st.sampled_from(["dram", "disk", None]))
    def drop(self, id_: str, place: str | None) -> None:
        self.store.drop(id_, place)
        self.places[id_] = self.places.get(id_, set()) - ({"dram", "disk"} if place is None else {place})

    @rule(id_=ids, place=_PLACES, at=st.integers(0, 100), cut=st.booleans())
    def damage(self, id_: str, place: str, at: int, cut: bool) -> None:
        kv = self.root / place / f"{id_}.kv"
        if not kv.exists():
            return
        data = kv.read_bytes()
        where = len(data) * at // 101
        kv.write_bytes(data[:where] if cut else data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :])
        try:
            self.store.ready(id_)
        except StagingError:
            pass
        else:
            assert (self.root / "dram" / f"{id_}.kv").read_bytes() == self.contents[id_]
        self.restart()  # a copy of another size is seen as none; one of the same size when it is used
        entry = self.store.entries.get(id_)
        self.places[id_] = set(entry.places) if entry else set()
        if place in self.places[id_]:
            self.drop(id_, place)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store(self.made)
        self.store.clean()

    @rule(id_=ids)
    def use(self, id_: str) -> None:
        known = bool(self.places.get(id_))
        fits = "dram" in self.places.get(id_, ()) or self.store.room_bytes("dram") >= len(self.contents.get(id_, b""))
        try:
            self.store.ready(id_)
        except StagingError:
            assert not (known and fits)
        else:
            assert (self.root / "dram" / f"{id_}.kv").read_bytes() == self.contents[id_]
            self.places[id_].add("dram")

    @invariant()
    def what_counts_is_what_lies_there(self) -> None:
        known = {id_: places for id_, places in self.places.items() if places}
        assert {id_: entry.places for id_, entry in self.store.entries.items()} == known
        for spec in self.made:
            assert self.store.used_bytes(spec.name) <= spec.quota_bytes
            lies = {each.name for each in spec.path.iterdir()}
            assert lies == {
                f"{i}.{kind}" for i, places in known.items() if spec.name in places for kind in ("kv", "json")
            }


Stores.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestStores = Stores.TestCase
