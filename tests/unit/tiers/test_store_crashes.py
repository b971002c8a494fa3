"""A kill, a power cut or a full disk at any change: what was staged is there and whole, or is known to be none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from archonctl.tiers import manifest
from archonctl.tiers.store import StagingError, Store, StoreTrouble
from support.kills import FULL, Counter, killed_at
from support.staged import FINGERPRINT, prefix, saved, specs, stage

_DATA = saved(8, b"state" * 1000)


def whole_copies(root: Path) -> dict[str, set[str]]:
    """Places by id, each copy read to its end; and after cleaning, nothing else is left in the folders."""
    store = Store(specs(root))
    try:
        store.clean()
        found = {}
        for id_, entry in store.entries.items():
            for place in entry.places:
                data = (store.specs[place].path / entry.staged.kv).read_bytes()
                assert data == _DATA
            found[id_] = set(entry.places)
            assert store.ready(id_) == entry.staged
        assert store.leftovers.ours == store.leftovers.foreign == ()
        names = {each.name for spec in store.specs.values() for each in spec.path.iterdir()}
        assert names == {f"{id_}.{kind}" for id_ in found for kind in ("kv", "json")}
    finally:
        store.close()
    return found


def test_adopting_what_the_engine_wrote_survives_a_kill_at_every_change(tmp_path: Path) -> None:
    for number in range(1, 100):
        root = tmp_path / str(number)
        root.mkdir()

        def work(_counter: Counter, root: Path = root) -> None:
            store = Store(specs(root))
            (root / "dram" / f"{'a' * 32}.kv").write_bytes(_DATA)
            store.adopt("a" * 32, 8, len(_DATA), FINGERPRINT, prefix())

        killed = killed_at(number, work)
        assert whole_copies(root) in ({}, {"a" * 32: {"dram"}})
        if not killed:
            assert number > 4
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("way", ["down", "up", "gone"])
def test_a_staged_file_is_never_lost_on_its_way_to_another_tier(tmp_path: Path, way: str) -> None:
    for number in range(1, 100):
        root = tmp_path / str(number)
        root.mkdir()
        store = Store(specs(root))
        id_ = stage(store)
        if way == "up":
            store.copy(id_, "dram", "disk")
            store.drop(id_, "dram")
        store.close()

        def work(_counter: Counter, root: Path = root, id_: str = id_) -> None:
            again = Store(specs(root))
            if way == "down":
                again.copy(id_, "dram", "disk")
                again.drop(id_, "dram")
            elif way == "up":
                again.ready(id_)
            else:
                again.drop(id_)

        killed = killed_at(number, work)
        found = whole_copies(root)
        assert found == {} if way == "gone" and found == {} else set(found) == {id_}
        if not killed:
            ends = {"down": {id_: {"disk"}}, "up": {id_: {"dram", "disk"}}, "gone": {}}
            assert found == ends[way]
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("number", range(1, 7))
def test_a_disk_that_is_full_keeps_the_copy_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = Store(specs(tmp_path))
    id_ = stage(store)
    with monkeypatch.context() as patch:
        counter = Counter(number, FULL)
        for name in ("write", "fsync", "rename"):
            patch.setattr(os, name, counter._counted(getattr(os, name), name))
        with pytest.raises(StagingError) as refused:
            store.copy(id_, "dram", "disk")
    assert refused.value.trouble is StoreTrouble.NO_ROOM
    assert store.entries[id_].places == {"dram"}
    store.close()
    assert whole_copies(tmp_path) == {id_: {"dram"}}


def test_a_manifest_that_is_cut_at_any_byte_or_changed_is_none() -> None:
    staged = manifest.Staged("a" * 32, FINGERPRINT, 8, len(_DATA), "b" * 64, prefix("x" * 9000), 3, 5.5)
    data = manifest.dump(staged)
    assert manifest.load(data) == staged
    for cut in range(len(data)):
        with pytest.raises(ValueError, match=r"."):
            manifest.load(data[:cut])
    changed = data.replace(b'"tokens": 8', b'"tokens": 9')
    assert changed != data
    with pytest.raises(ValueError, match="digest"):
        manifest.load(changed)


def test_a_file_that_is_cut_at_any_byte_is_no_staged_file(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    id_ = stage(store, payload=b"state" * 40)
    kv = tmp_path / "dram" / f"{id_}.kv"
    data = kv.read_bytes()
    for size in range(len(data)):
        kv.write_bytes(data[:size])
        store.look()
        assert not store.entries
    kv.write_bytes(data)
    store.look()
    assert set(store.entries) == {id_}
    store.close()
