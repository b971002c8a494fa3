"""The command line: argv word by word for both eras, and what cannot be rendered."""

from __future__ import annotations

from itertools import pairwise

import pytest
from radiance_cases import REPOSITORY, declared

from archonctl.engines.base import CommandLine
from archonctl.engines.radiance.adapter import ADAPTER
from archonctl.errors import DeclarationError

BINARY: dict[str, object] = {"image": "", "binary": "/opt/radiance/bin/radiance"}


def flags(command: CommandLine) -> dict[str, str]:
    """Flag to value of the engine's part; every flag here takes one."""
    words = list(command.argv)
    own = words[words.index("--model") :]
    return dict(zip(own[::2], own[1::2], strict=True))


@pytest.mark.parametrize("name", ["archon", "archon-pair"])
def test_the_command_line_is_the_golden_one_word_by_word(name: str) -> None:
    golden = (REPOSITORY / "tests" / "golden" / f"radiance_{name}.argv").read_text(encoding="utf-8").splitlines()
    assert list(ADAPTER.command(declared(name)).argv) == golden


def test_the_contract_and_the_declaration_are_rendered() -> None:
    found = flags(ADAPTER.command(declared()))
    assert found["--max-num-seqs"] == "3"
    assert found["--max-model-len"] == "200000"
    assert found["--kv-cache-dtype"] == "fp8"
    assert found["--host"] == "127.0.0.1"
    assert found["--port"] == "8000"
    assert found["--host-pool-mib"] == "45568"
    assert found["--busy-prefill-chunk"] == "auto"
    assert "--prefill-interleave" not in found


def test_no_retired_flag_and_no_data_mount_after_the_cutover() -> None:
    words = ADAPTER.command(declared()).argv
    for gone in ("--vram-weights-mib", "--vram-kv-mib", "--prefix-cache-dir", "--prefix-cache-disk-mib"):
        assert gone not in words
    assert "--prefix-cache-host-mib" not in words
    assert not any(word.startswith("/data") for word in words)


def test_flags_are_separate_words_and_never_joined_by_an_equals_sign() -> None:
    for name in ("archon", "archon-pair"):
        assert not any("=" in word for word in ADAPTER.command(declared(name)).argv if word.startswith("--"))


def test_busy_prefill_chunk_is_stated_even_if_it_is_not_declared() -> None:
    command = ADAPTER.command(declared(without=("busy-prefill-chunk",)))
    assert flags(command)["--busy-prefill-chunk"] == "auto"
    assert "busy-prefill-chunk" in command.notes[0]
    assert "--busy-prefill-chunk" not in ADAPTER.command(declared("archon-pair")).argv


def test_prefill_interleave_is_opt_in() -> None:
    assert flags(ADAPTER.command(declared(knobs={"prefill-interleave": 4})))["--prefill-interleave"] == "4"


def test_a_container_gets_devices_memlock_and_the_model_read_only_and_no_memory_limit() -> None:
    words = ADAPTER.command(declared()).argv
    pairs = set(pairwise(words))
    assert words[:2] == ("podman", "run")
    for pair in (
        ("--device", "/dev/kfd"),
        ("--device", "/dev/dri"),
        ("--ulimit", "memlock=-1:-1"),
        ("--network", "host"),
        ("--security-opt", "seccomp=unconfined"),
        ("--stop-timeout", "60"),
        ("--volume", "/models:/models:ro"),
    ):
        assert pair in pairs
    assert "--init" in words
    assert any(word.endswith("/tune") for word in words)
    assert not any(word.startswith(("--memory", "-m")) for word in words[: words.index("--model")])


def test_the_disk_tier_is_mounted_where_the_version_has_one() -> None:
    assert "/data/kvcache:/data/kvcache" in ADAPTER.command(declared("archon-pair")).argv


def test_the_environment_is_passed_by_name_and_its_values_stay_off_the_command_line() -> None:
    command = ADAPTER.command(declared(engine={"env": {"RADIANCE_LOG": "s3cret value"}}))
    assert ("--env", "RADIANCE_LOG") in set(pairwise(command.argv))
    assert not any("s3cret" in word for word in command.argv)
    assert command.env["RADIANCE_LOG"] == "s3cret value"


def test_a_binary_runs_directly_with_the_environment_that_the_image_would_set() -> None:
    command = ADAPTER.command(declared(engine=BINARY))
    assert command.argv[0] == "/opt/radiance/bin/radiance"
    assert command.argv[1] == "--model"
    assert command.env["GPU_MAX_ALLOC_PERCENT"] == "100"


def test_an_ipv6_address_loses_its_brackets() -> None:
    found = flags(ADAPTER.command(declared(service={"listen": "[::1]:8100"})))
    assert (found["--host"], found["--port"]) == ("::1", "8100")


def test_the_same_declaration_gives_the_same_command_line_in_any_order_of_knobs() -> None:
    endpoint = declared()
    shuffled = dict(reversed(list(endpoint.engine.knobs.items())))
    other = endpoint.model_copy(update={"engine": endpoint.engine.model_copy(update={"knobs": shuffled})})
    assert ADAPTER.command(endpoint) == ADAPTER.command(other)


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ({"engine": {"image": "registry.example/radiance:1.8.1"}}, "image-not-pinned"),
        ({"engine": {"image": "radiance@sha256:abc"}}, "image-not-pinned"),
        ({"engine": {"image": "rad iance@sha256:" + "0" * 64}}, "image-not-pinned"),
        ({"engine": {"image": ""}}, "engine-command-missing"),
        ({"engine": {"binary": "/opt/radiance"}}, "engine-command-missing"),
        ({"engine": {"image": "", "binary": "bin/radiance"}}, "path-not-absolute"),
        ({"engine": {"mounts": ["/a"]}}, "mount-invalid"),
        ({"engine": {"mounts": ["relative:/b"]}}, "mount-invalid"),
        ({"engine": {"mounts": ["/a:/b:ro --privileged"]}}, "mount-invalid"),
        ({"model": {"path": "models/x.rad"}}, "path-not-absolute"),
        ({"model": {"path": "/x.rad"}}, "mount-invalid"),
        ({"model": {"path": "/models:/etc/x.rad"}}, "path-not-absolute"),
        ({"service": {"api_key_file": "/etc/archon/key"}}, "knob-secret"),
        ({"engine": {"version": ""}}, "engine-version-missing"),
    ],
)
def test_what_cannot_run_is_refused_with_its_code(tables: dict[str, dict[str, object]], code: str) -> None:
    with pytest.raises(DeclarationError) as err:
        ADAPTER.command(declared(**tables))  # type: ignore[arg-type]
    assert err.value.code == code


def test_the_http_surface_is_the_documented_one() -> None:
    api = ADAPTER.api
    assert (api.health, api.tokenize, api.tokenize_field) == ("/health", "/tokenize", "prompt")
    assert api.checks_model_name is False
    assert api.over_window_statuses == {400}
