"""What other programs leave in the folders, and engines that do not write what they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.tiers.store import PlaceSpec, StagingError, Store, StoreTrouble
from support.staged import FINGERPRINT, prefix, saved, specs, stage

_ID = "a" * 32


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "dram").mkdir()
    (tmp_path / "dram").chmod(mode)
    with pytest.raises(HostRefusal) as refused:
        Store([PlaceSpec("dram", tmp_path / "dram", 1, True)])
    assert refused.value.code == "tiers-folder-unsafe"
    assert f"{mode:04o}" in refused.value.message


def test_a_folder_that_is_a_link_a_file_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    for name in ("link", "file", "missing"):
        with pytest.raises(HostRefusal) as refused:
            Store([PlaceSpec("dram", tmp_path / name, 1, True)])
        assert refused.value.code == "tiers-folder-unsafe"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_used_by_root_and_nobody_else(tmp_path: Path) -> None:
    made = specs(tmp_path)
    os.chown(tmp_path / "dram", 12345, 12345)
    tmp_path.chmod(0o755)
    Store(made).close()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setgid(23456)
            os.setuid(23456)
            Store(made)
        except HostRefusal:
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_two_processes_do_not_share_a_folder_but_anybody_may_look(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    id_ = stage(store)
    with pytest.raises(HostRefusal) as refused:
        Store(specs(tmp_path))
    assert refused.value.code == "tiers-folder-in-use"
    looking = Store(specs(tmp_path), lock=False)
    assert set(looking.entries) == {id_}
    looking.close()
    store.close()
    Store(specs(tmp_path)).close()


def test_links_devices_and_strange_names_are_left_alone(tmp_path: Path) -> None:
    made = specs(tmp_path)
    secret = tmp_path / "secret"
    secret.write_bytes(saved(8))
    dram = tmp_path / "dram"
    (dram / f"{_ID}.kv").symlink_to(secret)
    (dram / f"{'b' * 32}.json").symlink_to("/dev/zero")
    os.mkfifo(dram / f"{'c' * 32}.json")
    os.link(secret, dram / f"{'d' * 32}.kv")
    (dram / "notes.txt").write_text("mine")
    (dram / f"{'e' * 32}.kv").mkdir()
    (dram / os.fsdecode(b"\xff\n.kv")).mkdir()
    before = sorted(dram.iterdir())
    store = Store(made)
    assert store.clean() == ()
    assert sorted(dram.iterdir()) == before
    assert len(store.leftovers.foreign) == len(before)
    for name in (_ID, "d" * 32):
        with pytest.raises(StagingError):
            store.adopt(name, 8, secret.stat().st_size, FINGERPRINT, prefix())
    assert secret.read_bytes() == saved(8)
    store.close()


@pytest.mark.parametrize(
    ("said", "wrote"),
    [
        ((8, len(saved(8)) + 1), saved(8)),  # the end was lost when the file was closed
        ((9, len(saved(8))), saved(8)),
        ((8, 4), b"ggsq"),
        ((8, 64), b"\0" * 64),
        ((8, 24), saved(8)[:24]),
    ],
    ids=["short", "other-tokens", "no-head", "no-magic", "cut-head"],
)
def test_what_is_not_what_the_engine_said_is_not_staged(tmp_path: Path, said: tuple[int, int], wrote: bytes) -> None:
    store = Store(specs(tmp_path))
    (tmp_path / "dram" / f"{_ID}.kv").write_bytes(wrote)
    with pytest.raises(StagingError) as refused:
        store.adopt(_ID, said[0], said[1], FINGERPRINT, prefix())
    assert refused.value.trouble is StoreTrouble.DAMAGED
    assert not store.entries
    assert not list((tmp_path / "dram").iterdir())
    store.close()


def test_older_servers_and_unknown_packings_are_taken_by_their_size(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    plain = saved(8)[:8] + (8).to_bytes(4, "little") + b"\1\0\0\0" * 8 + b"state"
    unknown = saved(8)[:16] + (7).to_bytes(4, "little") + saved(8)[20:]
    for id_, data in ((_ID, plain), ("b" * 32, unknown)):
        (tmp_path / "dram" / f"{id_}.kv").write_bytes(data)
        assert store.adopt(id_, 8, len(data), FINGERPRINT, prefix()).tokens == 8
    store.close()


def test_a_staged_file_that_changed_is_never_handed_to_the_engine(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    first, second = stage(store), stage(store)
    store.copy(second, "dram", "disk")
    store.drop(second, "dram")
    for place, id_ in (("dram", first), ("disk", second)):
        kv = tmp_path / place / f"{id_}.kv"
        data = bytearray(kv.read_bytes())
        data[-1] ^= 1
        kv.write_bytes(data)
        with pytest.raises(StagingError) as refused:
            store.ready(id_)
        assert refused.value.trouble is StoreTrouble.DAMAGED
        assert not kv.exists()
    assert not store.entries
    assert not list((tmp_path / "dram").iterdir())
    store.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    id_ = stage(store)
    store.copy(id_, "dram", "disk")
    for each in [*(tmp_path / "dram").iterdir(), *(tmp_path / "disk").iterdir()]:
        assert each.stat().st_mode & 0o777 == 0o600
    store.close()


def test_cleaning_takes_what_is_half_made_and_what_is_old(tmp_path: Path) -> None:
    store = Store(specs(tmp_path))
    old, young = stage(store), stage(store)
    store.copy(old, "dram", "disk")
    for name in (f"{_ID}.kv", f"{'b' * 32}.json", f".{'c' * 32}.kv.part"):
        (tmp_path / "disk" / name).write_bytes(b"half")
    at = store.entries[young].staged.at
    assert {name for _place, name in store.clean(keep_s=1.0, now=at)} == {
        f"{_ID}.kv",
        f"{'b' * 32}.json",
        f".{'c' * 32}.kv.part",
    }
    assert set(store.entries) == {old, young}
    assert len(store.clean(keep_s=1.0, now=at + 60)) == 3
    assert not store.entries
    assert not [*(tmp_path / "dram").iterdir(), *(tmp_path / "disk").iterdir()]
    store.close()
