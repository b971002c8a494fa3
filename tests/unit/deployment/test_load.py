"""Loading a declaration: order of sources, origins, paths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint, parse_setting
from archonctl.deployment.problems import InvalidDeclaration
from archonctl.errors import DeclarationError, UsageError

TEXT = """\
# an endpoint
[contract]
seqs = 3
len = "128k"

[engine]
kind = "llamacpp"
[engine.knobs]
host_pool_mib = 45_568
threads = 2
[model]
path = "models/m.gguf"
[[predict]]
name = "prefill"
expect = 3290
[[predict]]
name = "decode"
expect = 13
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "repo" / "env" / "tiny.toml"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    return path


def load(file: Path, flags: dict[str, object] | None = None, /, **environ: str) -> LoadedEndpoint:
    return load_endpoint(file, flags or {}, environ, cwd=file.parents[2])


def test_the_file_gives_values_and_defaults_fill_the_rest(file: Path) -> None:
    loaded = load(file)
    assert (loaded.name, loaded.path, loaded.base_dir) == ("tiny", file, file.parents[1])
    assert loaded.endpoint.contract.len == 131_072
    assert loaded.endpoint.contract.kv_dtype == "f16"
    assert [p.name for p in loaded.endpoint.predict] == ["prefill", "decode"]
    assert loaded.origins["contract.len"] == f"{file}:4"
    assert loaded.origins["contract.kv_dtype"] == "default"
    assert loaded.origins["predict[1].expect"] == f"{file}:18"
    assert len(loaded.origins) == len(list(loaded.origins))


def test_a_copy_is_read_as_if_it_lay_in_its_place(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "staged" / "copy.toml"
    copy.parent.mkdir()
    copy.write_bytes(file.read_bytes())
    there, here = load(file), load_endpoint(copy, {}, {}, cwd=file.parents[2], place=file)
    assert (here.endpoint, here.name, here.path, here.base_dir) == (there.endpoint, "tiny", file, there.base_dir)
    assert (here.copy, there.copy, here.origins["contract.seqs"]) == (copy, None, f"{copy}:3")
    file.unlink()
    assert load_endpoint(copy, {}, {}, cwd=file.parents[2], place=file).endpoint == there.endpoint


def test_flags_win_over_environment_and_environment_over_file(file: Path) -> None:
    loaded = load(
        file, {"contract.seqs": 5, "contract.len": None}, ARCHON__CONTRACT__SEQS="4", ARCHON__CONTRACT__LEN="64k"
    )
    assert loaded.endpoint.contract.seqs == 5
    assert loaded.endpoint.contract.len == 65_536
    assert loaded.origins["contract.seqs"] == "flag --seqs"
    assert loaded.origins["contract.len"] == "environment ARCHON__CONTRACT__LEN"


def test_flags_as_text_become_the_type_of_their_key(file: Path) -> None:
    flags: dict[str, object] = {
        "contract.seqs": "7",
        "contract.margin": "0.25",
        "engine.version": "1.9",
        "host.detect": "true",
        "engine.knobs.ctx_size": "4096",
        "engine.knobs.flash-attn": "auto",
        "engine.env.A.B": "x",
    }
    with pytest.raises(DeclarationError) as caught:
        load(file, flags)
    assert caught.value.code == "declaration-bad-value"  # A.B is no variable
    del flags["engine.env.A.B"]
    endpoint = load(file, flags).endpoint
    assert endpoint.contract.seqs == 7
    assert endpoint.contract.margin == 0.25
    assert endpoint.engine.version == "1.9"
    assert endpoint.host.detect is True
    assert endpoint.engine.knobs == {"host-pool-mib": 45_568, "threads": 2, "ctx-size": 4096, "flash-attn": "auto"}


def test_knobs_from_the_environment_override_the_file_in_any_spelling(file: Path) -> None:
    loaded = load(file, ARCHON__ENGINE__KNOBS__HOST_POOL_MIB="44928", ARCHON__ENGINE__KNOBS__MODE="auto")
    assert loaded.endpoint.engine.knobs == {"host-pool-mib": 44_928, "threads": 2, "mode": "auto"}
    assert loaded.origins["engine.knobs.host-pool-mib"] == "environment ARCHON__ENGINE__KNOBS__HOST_POOL_MIB"
    assert loaded.origins["engine.knobs.threads"] == f"{file}:10"
    assert load(file).origins["engine.knobs.host-pool-mib"] == f"{file}:9"


def test_the_engines_own_variables_keep_their_case(file: Path) -> None:
    loaded = load(file, ARCHON__ENGINE__ENV__LLAMA_ARG_THREADS="2", ARCHON__ENGINE__ENV__a__B="007")
    assert loaded.endpoint.engine.env == {"LLAMA_ARG_THREADS": "2", "a__B": "007"}


def test_a_table_as_json_is_merged_key_by_key(file: Path) -> None:
    loaded = load(
        file,
        ARCHON__CONTRACT='{"seqs": 9, "margin": 0.5}',
        ARCHON__CONTRACT__SEQS="4",
        ARCHON__ENGINE='{"knobs": {"host_pool_mib": 1, "x": true}}',
        ARCHON__PREDICT='[{"name": "a", "expect": 1}]',
    )
    assert (loaded.endpoint.contract.seqs, loaded.endpoint.contract.margin) == (4, 0.5)
    assert loaded.endpoint.contract.len == 131_072
    assert loaded.endpoint.engine.knobs == {"host-pool-mib": 1, "threads": 2, "x": True}
    assert loaded.origins["engine.knobs.x"] == "environment ARCHON__ENGINE"
    assert [p.name for p in loaded.endpoint.predict] == ["a"]
    assert loaded.origins["predict[0].name"] == "environment ARCHON__PREDICT"


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("ARCHON__CONTRACT__SEQ", "ARCHON__CONTRACT__SEQS"),
        ("ARCHON__SERVICE__USR", "ARCHON__SERVICE__USER"),
        ("ARCHON__CONTRACTS", "ARCHON__CONTRACT"),
    ],
)
def test_an_unknown_variable_is_refused_by_name(file: Path, name: str, suggested: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        load(file, **{name: "1"})
    assert caught.value.code == "environment-unknown-key"
    assert name in caught.value.message
    assert f"did you mean {suggested}?" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["ARCHON__", "ARCHON____SEQS", "ARCHON__CONTRACT__SEQS__X", "ARCHON__ENGINE__KNOBS__", "archon__x"]
)
def test_a_malformed_variable_is_unknown(file: Path, name: str) -> None:
    with pytest.raises(DeclarationError, match="environment-unknown-key"):
        load(file, **{name: "1"})


def test_variables_of_other_kinds_are_left_alone(file: Path) -> None:
    assert load(file, ARCHON_ENDPOINT="x", ARCHON="y", XARCHON__CONTRACT__SEQS="1").endpoint.contract.seqs == 3


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"ARCHON__CONTRACT__SEQS": "abc"}, "declaration-wrong-type"),
        ({"ARCHON__CONTRACT__SEQS": ""}, "declaration-wrong-type"),
        ({"ARCHON__CONTRACT__SEQS": "0"}, "declaration-out-of-range"),
        ({"ARCHON__CONTRACT": "3"}, "declaration-bad-value"),
        ({"ARCHON__CONTRACT": "{"}, "declaration-bad-value"),
        ({"ARCHON__CONTRACT": "[" * 100_000}, "declaration-bad-value"),
        ({"ARCHON__ENGINE__KNOBS": "[1]"}, "declaration-bad-value"),
        ({"ARCHON__ENGINE": '{"knobs": 3}', "ARCHON__ENGINE__KNOBS__X": "1"}, "declaration-bad-value"),
        ({"ARCHON__CONTRACT__SEQS": "3", "archon__contract__seqs": "4"}, "declaration-contradiction"),
        ({"ARCHON__MODEL__PATH": "a\nb"}, "declaration-bad-value"),
        ({"ARCHON__MODEL__PATH": "\udcff"}, "declaration-bad-value"),
        ({"ARCHON__PREDICT__0__NAME": "x"}, "environment-unknown-key"),
        ({"ARCHON__ENGINE__ENV__A-B": "x"}, "declaration-bad-value"),
    ],
)
def test_a_bad_variable_is_one_error_that_names_it(file: Path, variables: dict[str, str], code: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        load(file, **variables)
    assert caught.value.code == code
    assert "ARCHON__" in str(caught.value).upper()
    str(caught.value).encode("utf-8")


def test_pydantic_settings_is_loaded_only_for_variables(file: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from archonctl.deployment.load import load_endpoint;"
        f"load_endpoint(Path({str(file)!r}), {{}}, {{}});"
        "sys.exit(int('pydantic_settings' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_flags_that_name_no_key_are_refused(file: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        load(file, {"contract.sqs": "4"})
    assert caught.value.code == "declaration-unknown-key"
    assert caught.value.where == "flag --set contract.sqs"
    with pytest.raises(DeclarationError, match=r"predict is an array of 2, so predict\.0\.name cannot be set"):
        load(file, {"predict.0.name": "x"})


def test_relative_paths_are_looked_for_in_order(file: Path) -> None:
    cwd, root = file.parents[2], file.parents[1]
    assert load(file).endpoint.model.path == str(root / "models/m.gguf")  # nowhere: below the root
    for folder in (file.parent, root, cwd):
        (folder / "models").mkdir()
        (folder / "models/m.gguf").touch()
        assert load(file).endpoint.model.path == str(folder / "models/m.gguf")
        assert load(file).paths["model.path"] == folder / "models/m.gguf"


def test_home_is_expanded_and_absolute_paths_stay(file: Path, tmp_path: Path) -> None:
    flags: dict[str, object] = {"model.path": "~/m.gguf", "engine.binary": "/opt/x/llama-server"}
    endpoint = load(file, flags, HOME=str(tmp_path)).endpoint
    assert endpoint.model.path == f"{tmp_path}/m.gguf"
    assert endpoint.engine.binary == "/opt/x/llama-server"


def test_a_program_without_a_slash_is_looked_up_on_the_path(file: Path, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "engine-x"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    assert load(file, {"engine.binary": "engine-x"}, PATH=f"/nowhere:{tmp_path}/bin").endpoint.engine.binary == str(
        file.parents[1] / "engine-x"
    )
    program.chmod(0o755)
    found = load(file, {"engine.binary": "engine-x"}, PATH=f"/nowhere:{tmp_path}/bin").endpoint.engine.binary
    assert found == str(program)


def test_a_hub_name_stays_a_name_for_engines_that_take_one(file: Path) -> None:
    flags: dict[str, object] = {"engine.kind": "vllm", "model.path": "Qwen/Qwen3-8B"}
    assert load(file, flags).endpoint.model.path == "Qwen/Qwen3-8B"


def test_paths_too_long_or_odd_are_no_traceback(file: Path) -> None:
    load(file, {"model.path": "x" * 5000, "host.profile": "/srv/\u00e4/" + "y" * 300})


@pytest.mark.parametrize("text", ["", "=", "a", "=3", ".=3", "a..b=3", " =1"])
def test_a_malformed_setting_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="setting-malformed"):
        parse_setting(text)


def test_a_setting_is_split_at_the_first_equals_sign() -> None:
    assert parse_setting("engine.env.A=b=c") == ("engine.env.A", "b=c")


def test_every_mistake_of_a_file_is_told_at_once(file: Path) -> None:
    file.write_text(
        "[contract]\nseqs = 0\nlen = 200000\nmargn = 0.1\n[engine]\nkind = 'vlm'\n"
        "[model]\npath = 3\n[[predict]]\nname = 'a'\n"
    )
    with pytest.raises(InvalidDeclaration) as caught:
        load(file, {"contract.len": -5})
    lines = str(caught.value).splitlines()
    assert [p.code for p in caught.value.problems] == [
        "declaration-out-of-range",
        "declaration-out-of-range",
        "declaration-unknown-key",
        "declaration-bad-value",
        "declaration-wrong-type",
        "declaration-missing-key",
    ]
    assert caught.value.code == "declaration-out-of-range"
    assert lines[0] == (
        "declaration-out-of-range: flag --len: contract.len is -5, expected a whole number from 16 to 100,000,000"
    )
    assert lines[2].startswith(f"declaration-unknown-key: {file}:4: contract.margn is no key in [contract]")
    assert "did you mean contract.margin?" in lines[2]
    assert "did you mean vllm?" in lines[3]
    assert f"{file}:9" in lines[5]


def test_thousands_of_mistakes_are_counted_not_listed(file: Path) -> None:
    file.write_text(TEXT + "".join(f"[k{n}]\n" for n in range(5000)))
    with pytest.raises(InvalidDeclaration) as caught:
        load(file)
    assert len(str(caught.value).splitlines()) == 21
    assert "and 4,980 more" in str(caught.value)
