"""What runs against its release and its verdict, over a simulated machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from archonctl.errors import ArchonError
from archonctl.release.load import StoredRelease
from archonctl.service import surroundings as around
from archonctl.service.drift import drift
from archonctl.service.history import Record
from archonctl.service.installed import Installed, argv_of, installed_names
from archonctl.service.running import environment_differences, runs
from archonctl.service.status import last_verdict, status
from archonctl.service.unit import UnitState
from support.simd import NAME, PID, Simd, digest_of, do_apply, machine


@pytest.fixture
def simd(tmp_path: Path) -> Simd:
    """A machine with an endpoint that holds, and a TTM limit."""
    found = machine(tmp_path)
    limit = tmp_path / "sys/module/ttm/parameters/pages_limit"
    limit.parent.mkdir(parents=True)
    limit.write_text("1000\n")
    do_apply(found, "a")
    (tmp_path / f"proc/{PID}/environ").write_bytes(b"WORD=a\0PATH=/bin\0INVOCATION_ID=i\0")
    return found


def judged(simd: Simd) -> Record:
    """The last verdict, with the facts of this moment."""
    installed = simd.installed
    found = installed.history().last()
    assert found is not None
    release = installed.stored(installed.current())
    return replace(found, facts=around.surroundings(installed, release, simd.show(installed.unit)))


def codes(simd: Simd, verdict: Record | None, **changes: object) -> list[str]:
    state = replace(simd.show(simd.installed.unit), **changes)  # type: ignore[arg-type]
    return [finding.code for finding in drift(simd.installed, state, verdict).findings]


def test_nothing_changed_is_no_drift(simd: Simd) -> None:
    assert codes(simd, judged(simd)) == []


def test_a_limit_that_a_reboot_reset_is_named_with_both_values(simd: Simd, tmp_path: Path) -> None:
    verdict = judged(simd)
    (tmp_path / "sys/module/ttm/parameters/pages_limit").write_text("500\n")
    found = drift(simd.installed, simd.show(simd.installed.unit), verdict).findings
    assert [(f.code, f.message) for f in found] == [
        ("drift-cap", "TTM limit in pages since the verdict: expected 1000, found 500")
    ]
    (tmp_path / "sys/module/ttm/parameters/pages_limit").unlink()
    looked = drift(simd.installed, simd.show(simd.installed.unit), verdict)
    assert (looked.findings, len(looked.unchecked)) == ((), 1)


def test_another_kernel_and_another_boot_are_named(simd: Simd) -> None:
    verdict = judged(simd)
    old = replace(verdict, facts={**verdict.facts, "kernel": "5.0", "boot_id": "another"})
    found = codes(simd, old)
    assert "drift-kernel" in found
    assert "drift-unverified" not in found  # said once: the boot explains the other start


def test_argv_and_environment_of_the_process_are_compared(simd: Simd, tmp_path: Path) -> None:
    verdict = judged(simd)
    (tmp_path / f"proc/{PID}/cmdline").write_bytes(b"/bin/engine\0--word\0b\0")
    (tmp_path / f"proc/{PID}/environ").write_bytes(b"WORD=b\0API_TOKEN=hush\0LD_PRELOAD=/x.so\0")
    found = drift(simd.installed, simd.show(simd.installed.unit), verdict).findings
    assert {f.code for f in found} == {"drift-argv", "drift-environ"}
    said = "\n".join(f.message for f in found)
    assert "'b'" in said
    assert "'a' is declared" in said
    assert "LD_PRELOAD" in said
    assert "hush" not in said


def test_an_environment_that_may_not_be_read_is_not_called_sound(simd: Simd, tmp_path: Path) -> None:
    verdict = judged(simd)
    (tmp_path / f"proc/{PID}/environ").unlink()
    looked = drift(simd.installed, simd.show(simd.installed.unit), verdict)
    assert looked.findings == ()
    assert "environ" in looked.unchecked[0]


def test_a_wrapper_is_known_by_what_it_ran_as_when_it_held(simd: Simd, tmp_path: Path) -> None:
    (tmp_path / f"proc/{PID}/cmdline").write_bytes(b"/opt/real\0--word\0a\0")
    release = simd.installed.stored(simd.installed.current())
    assert not runs(argv_of(release), PID, simd.installed.proc)
    facts = around.surroundings(simd.installed, release, simd.show(simd.installed.unit))
    assert facts["cmdline"] == "/opt/real\0--word\0a"
    assert runs(argv_of(release), PID, simd.installed.proc, str(facts["cmdline"]).split("\0"))


def test_files_that_were_edited_are_named(simd: Simd) -> None:
    verdict = judged(simd)
    file = simd.installed.drop_in_file
    file.write_text(file.read_text().replace("TimeoutStopSec=90", "TimeoutStopSec=9"))
    assert codes(simd, verdict) == ["drift-file"]
    file.unlink()
    assert codes(simd, verdict, stale=True) == ["drift-file", "drift-unit"]
    (simd.installed.releases / simd.installed.current() / "start").write_text("x")
    assert codes(simd, verdict) == ["drift-release"]


def test_an_endpoint_that_is_down_unverified_or_half_done_is_drift(simd: Simd) -> None:
    verdict = judged(simd)
    assert codes(simd, verdict, main_pid=0, active="failed") == ["drift-stopped"]
    assert codes(simd, None) == ["drift-unverified"]
    assert codes(simd, replace(verdict, invocation="another")) == ["drift-unverified"]
    assert codes(simd, replace(verdict, verdict="broken")) == ["drift-unverified"]
    (simd.installed.folder / "apply.json").write_text(
        '{"schema": "archonctl.transaction/1", "id": "1", "endpoint": "tiny", "phase": "starting", "new": "x", "n": 1}'
    )
    assert codes(simd, verdict) == ["drift-half-done"]


def test_a_model_file_that_was_touched_is_drift(simd: Simd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"12")
    monkeypatch.setattr(around, "model_facts", lambda _path: {"model_bytes": file.stat().st_size})
    verdict = judged(simd)
    file.write_bytes(b"123")
    assert codes(simd, verdict) == ["drift-model"]


def test_status_tells_what_holds_and_what_was_not_asked(simd: Simd) -> None:
    state = simd.show(simd.installed.unit)
    found = status(simd.installed, state)
    assert (found.word, found.release, found.seqs, found.len_tokens) == (
        "holds",
        digest_of("a", simd.root),
        1,
        1024,
    )
    assert status(simd.installed, replace(state, invocation="another")).word == "unverified"
    assert status(simd.installed, replace(state, active="failed")).word == "down"
    assert status(simd.installed, replace(state, active="activating")).word == "down"


def test_an_endpoint_without_a_readable_release_is_still_shown(simd: Simd) -> None:
    (simd.installed.releases / simd.installed.current() / "declaration.json").unlink()
    found = status(simd.installed, simd.show(simd.installed.unit))
    assert (found.seqs, found.engine) == (None, "")
    assert "declaration.json" in found.remark or "release" in found.remark


def test_installed_endpoints_are_found_and_strays_are_not(simd: Simd, tmp_path: Path) -> None:
    base = tmp_path / "var/lib/archon"
    (base / "stray").mkdir()
    (base / "a file").write_text("")
    (base / ".hidden/releases").mkdir(parents=True)
    assert installed_names(tmp_path) == [NAME]
    assert installed_names(tmp_path / "nowhere") == []


def test_endpoints_that_may_not_be_looked_into_are_not_none(
    simd: Simd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as closed:  # root may look everywhere
        closed.setattr(Path, "exists", denied)
        assert installed_names(tmp_path) == [NAME]
        closed.setattr("archonctl.service.installed.os.listdir", denied)
        with pytest.raises(ArchonError, match="Permission denied"):
            installed_names(tmp_path)


def test_a_verdict_of_the_history_counts_for_its_own_start(simd: Simd) -> None:
    state = simd.show(simd.installed.unit)
    found = last_verdict(simd.installed, state)
    assert found is not None
    assert found.invocation == state.invocation


def test_variables_that_every_process_has_are_no_drift() -> None:
    given = {"PATH": "/bin", "LC_ALL": "C", "NOTIFY_SOCKET": "x", "CACHE_DIRECTORY": "/c", "ARCHON_X": "1"}
    assert environment_differences({"A": "1"}, {"A": "1", **given}) == {}
    assert environment_differences({"A": "1"}, {"B": "2"}) == {"A": ("1", "unset"), "B": ("unset", "2")}


def test_a_state_that_cannot_be_read_is_an_error_not_an_empty_one(simd: Simd) -> None:
    simd.installed.history_file.unlink()
    simd.installed.history_file.mkdir()
    with pytest.raises(ArchonError) as caught:
        status(simd.installed, UnitState("active", "", "", 1, 0, 0, 0, "", "", "", 0))
    assert caught.value.code == "state-unreadable"


def test_the_places_of_an_endpoint_stay_below_the_root(tmp_path: Path) -> None:
    with pytest.raises(ArchonError):
        Installed("../etc", tmp_path)


def declared(simd: Simd, monkeypatch: pytest.MonkeyPatch, text: str, **origins: str) -> None:
    """Have the release come from a file that says ``text``; ``origins`` by key, dots as underscores."""
    stored = Installed.stored
    path = simd.root / f"{NAME}.toml"
    path.write_text(text)

    def told(installed: Installed, digest: str) -> StoredRelease:
        release = stored(installed, digest)
        found = {key.replace("_", ".", 1): origin for key, origin in origins.items()}
        return replace(release, loaded=replace(release.loaded, path=path, base_dir=simd.root, origins=found))

    monkeypatch.setattr(Installed, "stored", told)


def as_text(simd: Simd) -> str:
    value = simd.installed.stored(simd.installed.current()).loaded.endpoint.model_dump(
        mode="json", exclude={"kubernetes", "predict"}, exclude_defaults=True
    )
    return tomli_w.dumps(value)


def test_a_declaration_that_says_something_else_than_what_runs_is_told(
    simd: Simd, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, verdict = as_text(simd), judged(simd)
    assert "seqs" in text
    more = text.replace("[contract]\n", "[contract]\nmargin = 0.25\n")
    look = lambda: drift(simd.installed, simd.show(simd.installed.unit), verdict)  # noqa: E731
    remark = lambda: status(simd.installed, simd.show(simd.installed.unit)).remark  # noqa: E731
    with monkeypatch.context() as patch:
        declared(simd, patch, text)
        assert (look().findings, remark()) == ((), "")
    with monkeypatch.context() as patch:
        declared(simd, patch, more)
        (found,) = look().findings
        assert (found.code, "margin" in found.message, "0.25" in found.message) == ("drift-declaration", True, True)
        assert "contract.margin" in remark()
    with monkeypatch.context() as patch:  # given by a variable when it was applied
        declared(simd, patch, more, contract_margin="environment ARCHON__CONTRACT__MARGIN")
        assert (look().findings, remark()) == ((), "")
    with monkeypatch.context() as patch:
        declared(simd, patch, "half [written")
        assert ([found.code for found in look().findings], bool(remark())) == (["drift-declaration"], True)
        (simd.root / f"{NAME}.toml").unlink()
        assert (look().findings, remark()) == ((), "")
