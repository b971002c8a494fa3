"""Which files a folder gives, which version judges them, and what is said of what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.errors import UsageError
from archonctl.gate.paths import Options, check_paths
from unit.gate.conftest import Judge, codes

NO_UNITS = Options(verify_units=False)
STALE = "#!/bin/sh\nexec vllm serve m --enable-reasoning --reasoning-parser qwen3\n"


@pytest.mark.parametrize(
    ("text", "name", "options", "refused"),
    [
        (STALE, "a.sh", {"engine_version": "0.10.0"}, True),
        (STALE, "a.sh", {"engine_version": "0.9.2"}, False),
        (STALE, "a.sh", {}, False),
        (STALE + "# archonctl: engine=vllm version=0.10.0\n", "a.sh", {}, True),
        (STALE + "# archonctl: engine-version=0.10.0\n", "a.sh", {}, True),
        (STALE + "# pip install vllm==0.10.0\n", "a.sh", {}, True),
        (STALE + "# vllm==0.10.0 or vllm==0.9.0\n", "a.sh", {}, False),
        (STALE, "start", {"engine_version": "0.10.0"}, True),
        (STALE.replace("#!/bin/sh\n", ""), "start", {"engine_version": "0.10.0"}, True),
        ("VLLM_ATTENTION_BACKEND=FLASH_ATTN\n", "a.env", {}, False),
        ("LLAMA_ARG_MADE_UP=1\n", "a.env", {}, True),
        ("LLAMA_ARG_MADE_UP=1\n", "defaults", {}, True),
        ('["vllm", "serve", "m", "--enable-reasoning"]', "words", {"engine_version": "0.10.0"}, True),
        (
            "[Service]\nExecStart=/usr/bin/vllm serve m --enable-reasoning\n",
            "a.unit",
            {"engine_version": "0.10.0"},
            True,
        ),
    ],
)
def test_the_version_decides(judge: Judge, text: str, name: str, options: dict[str, str], refused: bool) -> None:
    assert bool(codes(judge(text, name, **options), "error")) == refused


def test_a_declaration_beside_a_file_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "big.toml").write_text(
        '[contract]\nseqs = 1\nlen = 4096\nkv_dtype = "auto"\n[model]\npath = "/m"\n'
        '[engine]\nkind = "vllm"\nversion = "0.10.0"\nbinary = "/v"\n'
    )
    (tmp_path / "big.sh").write_text(STALE)
    assert codes(check_paths([tmp_path / "big.sh"], NO_UNITS).findings, "error") == ["knob-retired"]


def test_a_unit_tells_the_version_of_its_env_file(tmp_path: Path) -> None:
    unit = "# archonctl: engine=vllm version=0.32.0\n[Service]\nExecStart=/v/vllm serve m\n"
    unit += "EnvironmentFile=-/etc/default/vllm.env\n"
    (tmp_path / "vllm.service").write_text(unit)
    (tmp_path / "vllm.env").write_text("VLLM_USE_V1=1\n")
    seen = check_paths([tmp_path], NO_UNITS).findings
    assert [one.code for one in seen if one.place.path.endswith(".env")] == ["knob-retired"]
    assert "0.32.0" in next(one for one in seen if one.place.path.endswith(".env")).message
    assert codes(check_paths([tmp_path / "vllm.env"], NO_UNITS).findings, "error") == []


def test_a_script_inherits_the_environment_it_is_started_from(judge: Judge) -> None:
    script = "#!/bin/sh\n# archonctl: engine=llamacpp version=b11434\nexec llama-server -m m\n"
    environ = {"LLAMA_ARG_CTX_SIZE": "1", "HOME": "/root"}
    assert codes(judge(script, "a.sh", environ=environ)) == ["knob-inherited"]
    assert codes(judge(script, "a.sh")) == []


def test_a_file_that_is_none_of_ours_is_said_where_it_was_named(judge: Judge, tmp_path: Path) -> None:
    assert codes(judge("hello\n", "notes.txt")) == ["gate-file-unknown"]
    report = check_paths([tmp_path], NO_UNITS)
    assert (report.findings, report.files) == ((), ())
    assert [Path(name).name for name in report.skipped] == ["notes.txt"]


def test_a_path_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check_paths([tmp_path / "gone"], NO_UNITS)
    assert caught.value.code == "gate-path-missing"


def test_hidden_and_package_folders_are_left_out(tmp_path: Path) -> None:
    for folder in (".git", "node_modules", "venv"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.sh").write_text(STALE)
    assert check_paths([tmp_path], Options(engine_version="0.10.0", verify_units=False)).files == ()


def test_strict_refuses_warnings() -> None:
    good = Path(__file__).parents[2] / "golden" / "gate" / "good" / "docker-vllm.sh"
    assert not check_paths([good], NO_UNITS).refused
    assert check_paths([good], Options(strict=True, verify_units=False)).refused


def test_systemd_itself_is_asked_about_units(judge: Judge) -> None:
    unit = "# archonctl: engine=llamacpp version=b11434\n[Unit]\nAfter=network.target\n[Service]\n"
    unit += "ExecStart=/opt/x/llama-server -m m\nRestrt=no\n"
    found = [one for one in judge(unit, "x.service", verify_units=True) if one.severity == "error"]
    assert [(one.code, one.place.line) for one in found] == [("unit-refused", 6)]
    assert codes(judge(unit.replace("Restrt", "Restart"), "x.service", verify_units=True), "error") == []
