"""The command line of llama-server: what is always written, what is refused, what is said aloud."""

from __future__ import annotations

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef, Service
from archonctl.engines.base import CommandLine
from archonctl.engines.knobs import check_argv
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.errors import DeclarationError


def endpoint(
    knobs: dict[str, KnobValue] | None = None,
    listen: str = "127.0.0.1:8177",
    engine: dict[str, object] | None = None,
    **contract: object,
) -> Endpoint:
    return Endpoint(
        contract=Contract.model_validate({"seqs": 3, "len": 8192, **contract}),
        engine=Engine.model_validate(
            {
                "kind": "llamacpp",
                "version": "b11434",
                "binary": "/opt/llama-server",
                "knobs": knobs or {},
                **(engine or {}),
            }
        ),
        model=ModelRef(path="/models/tiny.gguf", served_name="tiny"),
        service=Service(listen=listen, api_key_file="/etc/archon/keys"),
    )


def command(knobs: dict[str, KnobValue] | None = None, **more: object) -> CommandLine:
    return ADAPTER.command(endpoint(knobs, **more))  # type: ignore[arg-type]


def refused(knobs: dict[str, KnobValue] | None = None, **more: object) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        command(knobs, **more)
    return caught.value


def test_everything_that_decides_memory_is_written_out() -> None:
    assert " ".join(command().argv) == (
        "/opt/llama-server --model /models/tiny.gguf --host 127.0.0.1 --port 8177 --alias tiny "
        "--api-key-file /etc/archon/keys --ctx-size 24576 --parallel 3 --no-kv-unified --cache-type-k f16 "
        "--cache-type-v f16 --flash-attn auto --batch-size 2048 --ubatch-size 512 --cache-ram 8192 "
        "--ctx-checkpoints 32 --verbosity 4 --metrics --slots"
    )


def test_the_ledger_level_is_said_aloud() -> None:
    assert any("--verbosity 4 is set" in note for note in command().notes)


def test_quantised_v_turns_flash_attention_on() -> None:
    argv = command(kv_dtype="q8_0").argv
    assert argv[argv.index("--flash-attn") + 1] == "on"
    assert argv[argv.index("--cache-type-v") + 1] == "q8_0"


def test_knobs_come_in_long_form_and_in_a_stable_order() -> None:
    one = command({"ngl": "all", "t": 2, "temp": 0.7, "no-webui": True, "cram": 0})
    two = command({"cache-ram": 0, "ui": False, "temperature": 0.7, "threads": 2, "n-gpu-layers": "all"})
    assert one.argv == two.argv
    assert one.argv[-7:] == ("--threads", "2", "--gpu-layers", "all", "--temp", "0.7", "--no-ui")


def test_capacity_knobs_are_written_once() -> None:
    argv = command({"c": 8192, "np": 2, "kvu": True, "b": 1024, "ub": 256, "fa": "on", "ctxcp": 4}).argv
    for flag in ("--ctx-size", "--parallel", "--kv-unified", "--batch-size", "--ubatch-size", "--ctx-checkpoints"):
        assert argv.count(flag) == 1, flag
    assert "--no-kv-unified" not in argv


def test_auto_slots_are_left_to_the_engine() -> None:
    argv = command({"np": -1}).argv
    assert argv[argv.index("--parallel") + 1] == "-1"
    assert "--kv-unified" in argv


def test_a_true_flag_is_written_and_a_false_one_is_not() -> None:
    assert "--swa-full" in command({"swa-full": True}).argv
    assert "--swa-full" not in command({"swa-full": False}).argv


def test_brackets_of_an_ipv6_address_are_for_people() -> None:
    argv = command(listen="[::1]:8177").argv
    assert argv[argv.index("--host") + 1] == "::1"


def test_an_empty_name_and_key_file_write_nothing() -> None:
    plain = endpoint().model_copy(update={"model": ModelRef(path="m.gguf"), "service": Service()})
    argv = ADAPTER.command(plain).argv
    assert "--alias" not in argv
    assert "--api-key-file" not in argv


def test_the_environment_is_the_declared_one_alone() -> None:
    assert command(engine={"env": {"OMP_NUM_THREADS": "2"}}).env == {"OMP_NUM_THREADS": "2"}
    assert command().env == {}


@pytest.mark.parametrize(
    ("knobs", "code", "hint"),
    [
        ({"ctx-sise": 8192}, "knob-unknown", "did you mean ctx-size?"),
        ({"xyzzy": 1}, "knob-unknown", "llama-server --help lists them"),
        ({"mlock": True}, "knob-retired", 'use load-mode = "mmap+mlock" ("mlock" beside --no-mmap)'),
        ({"no-mmap": True}, "knob-retired", 'use load-mode = "none"'),
        ({"direct_io": True}, "knob-retired", 'use load-mode = "dio"'),
        ({"draft": 16}, "knob-retired", "use spec-draft-n-max (or spec-ngram-mod-n-max)"),
        ({"model": "x"}, "knob-reserved", "set model.path"),
        ({"m": "x"}, "knob-reserved", "set model.path"),
        ({"port": 1}, "knob-reserved", "set service.listen"),
        ({"api-key": "hunter2"}, "knob-secret", "put keys into a file and set service.api_key_file"),
        ({"hf-repo": "a/b"}, "knob-reserved", "fetch the file, then set model.path (or spec-draft-model, mmproj)"),
        ({"log-disable": True}, "knob-reserved", "leave the log as it is"),
        ({"help": True}, "knob-reserved", "run it by hand"),
        ({"threads": "two"}, "knob-bad-value", "the engine's default is -1"),
        ({"threads": 2.5}, "knob-bad-value", "the engine's default is -1"),
        ({"temp": "hot"}, "knob-bad-value", "the engine's default is 0.80"),
        ({"load-mode": "fast"}, "knob-bad-value", "the engine's default is auto"),
        ({"grammar": "a\nb"}, "knob-bad-value", ""),
        ({"swa-full": "perhaps"}, "knob-bad-value", ""),
        ({"verbosity": "loud"}, "knob-bad-value", "the engine's default is 3"),
        ({"spec-type": "draft-mtp,magic"}, "knob-bad-value", "the engine's default is none"),
        ({"temp": 1, "temperature": 2}, "knob-twice", "keep one of them"),
    ],
    ids=str,
)
def test_a_knob_that_cannot_be_rendered_says_what_to_do(knobs: dict[str, KnobValue], code: str, hint: str) -> None:
    error = refused(knobs)
    assert (error.code, error.hint) == (code, hint)
    assert error.where.startswith("engine.knobs.")
    assert "hunter2" not in str(error)


def test_a_retired_flag_names_the_builds() -> None:
    message = refused({"mlock": True}, engine={"version": "b11000"}).message
    assert "b10878" in message
    assert "b10867" in message
    assert "b11000" in message


@pytest.mark.parametrize("version", ["b4000", "b4719", "b6000", "b6324", "b6325", "b6700", "b8000", "b9360", "b11434"])
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_every_build_takes_what_is_rendered_for_it(version: str, dtype: str) -> None:
    old = {} if version == "b11434" else {"mlock": True, "no-mmap": True}
    argv = command({"threads": 4, **old}, engine={"version": version}, kv_dtype=dtype).argv
    assert [one for one in check_argv("llamacpp", version, argv[1:]) if one.severity == "error"] == []
    assert ("--mlock" in argv) == bool(old)
    assert ("--cache-ram" in argv) == (version in ("b8000", "b9360", "b11434"))


def test_a_flag_that_came_later_says_when() -> None:
    error = refused({"load-mode": "mlock"}, engine={"version": "b6000"})
    assert (error.code, "b10105" in error.message) == ("knob-unknown", True)


def test_a_retired_variable_is_found_in_the_environment() -> None:
    error = refused(engine={"env": {"LLAMA_ARG_MLOCK": "1"}})
    assert (error.code, error.where) == ("knob-retired", "engine.env.LLAMA_ARG_MLOCK")


def test_a_quieter_log_is_not_followed_and_a_louder_one_is() -> None:
    quiet, loud = command({"lv": 1}), command({"log-verbosity": 5})
    assert quiet.argv[quiet.argv.index("--verbosity") + 1] == "4"
    assert any("raised to 4" in note for note in quiet.notes)
    assert loud.argv[loud.argv.index("--verbosity") + 1] == "5"


def test_slots_and_metrics_stay_on() -> None:
    line = command({"no-slots": True, "metrics": False})
    assert "--no-slots" not in line.argv
    assert sum("is not followed" in note for note in line.notes) == 2


def test_a_deprecated_flag_is_rendered_and_said() -> None:
    line = command({"defrag-thold": 0.1})
    assert line.argv[-2:] == ("--defrag-thold", "0.1")
    assert any("DEPRECATED" in note for note in line.notes)


def test_an_image_without_a_whole_digest_is_refused() -> None:
    assert refused(engine={"binary": "", "image": "ghcr.io/x@sha256:0"}).code == "image-not-pinned"


def test_neither_a_binary_nor_an_image_is_refused() -> None:
    assert refused(engine={"binary": ""}).code == "engine-binary-missing"


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.1:70000"])
def test_a_port_that_is_none_is_refused(listen: str) -> None:
    assert refused(listen=listen).code == "listen-invalid"
