"""The table of llama-server's flags, and the reader of its help text."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archonctl.engines.knob_values import as_bool, as_int, spelled
from archonctl.engines.knobs import Knob, load_folder, render
from archonctl.engines.knobs.row import first_long
from archonctl.engines.llamacpp.harvest import parse_help
from archonctl.engines.llamacpp.kv import ROW_BLOCKS
from archonctl.engines.passed_on import table
from archonctl.errors import DeclarationError


def _said(run: Callable[[], object]) -> str:
    """The code, or the first words, of what ``run`` raised; empty if it did not."""
    try:
        run()
    except DeclarationError as refused:
        return refused.code
    except ValueError as error:
        return " ".join(str(error).split()[:2])
    return ""


HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
                                        (env: LLAMA_ARG_FLASH_ATTN)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
                                        (env: LLAMA_ARG_KV_OFFLOAD)
--no-host                               bypass host buffer allowing extra buffers to be used
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16
                                        (default: f16)
-lm,   --load-mode MODE                 model loading mode (default: auto)
                                        - none: no special loading mode
                                        - mmap+mlock: both

                                        (env: LLAMA_ARG_LOAD_MODE)
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
--temp, --temperature N                 temperature (default: 0.80)
--control-vector-layer-range START END
                                        layer range to apply the control vector(s) to


----- example-specific params -----

--poll-batch <0|1>                      use polling to wait for work (default: same as --poll)
-ts,   --tensor-split N0,N1,N2,...      fraction of the model to offload to each GPU
"""


def test_a_help_text_becomes_rows() -> None:
    rows = {first_long(seen.names).lstrip("-"): seen for seen in parse_help(HELP)}
    assert {flag: knob.type for flag, knob in rows.items()} == {
        "help": "bool",
        "ctx-size": "int",
        "flash-attn": "str",
        "kv-offload": "switch",
        "no-host": "bool",
        "cache-type-k": "str",
        "load-mode": "str",
        "gpu-layers": "int",
        "temp": "float",
        "control-vector-layer-range": "pair",
        "poll-batch": "int",
        "tensor-split": "list",
    }
    assert rows["ctx-size"].env == "LLAMA_ARG_CTX_SIZE"
    assert rows["ctx-size"].default == "0, 0 = loaded from model"
    assert rows["kv-offload"].negatives == ("-nkvo", "--no-kv-offload")
    assert rows["flash-attn"].choices == ("on", "off", "auto")
    assert rows["cache-type-k"].choices == ("f32", "f16")
    assert rows["load-mode"].choices == ("none", "mmap+mlock", "auto")
    assert rows["gpu-layers"].words == ("auto", "all")
    assert rows["poll-batch"].choices == ("0", "1")


@pytest.mark.parametrize("text", ["", "usage: something else", "<!doctype html>\n<html>", "\0" * 100])
def test_what_is_no_help_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no option"):
        parse_help(text)


@given(st.text())
def test_any_text_ends_in_rows_or_one_error(text: str) -> None:
    assert _said(lambda: parse_help(text)) in ("", "no option")


def test_the_table_names_its_source_and_nothing_twice() -> None:
    known = table("llamacpp", "b11434")
    assert (known.table.engine, known.version) == ("llamacpp", "b11434")
    names = Counter(name for knob in known.knobs for name in {spelled(n) for n in (*knob.names, *knob.negatives)})
    assert [name for name, times in names.items() if times > 1] == []
    keys = Counter(knob.env_key for knob in known.knobs if knob.env_key)
    assert [key for key, times in keys.items() if times > 1] == []
    assert all(knob.source and knob.effect for knob in known.knobs)
    assert all(row.source for row in (*known.table.retired, *known.table.managed, *known.table.deprecated))


def test_the_rules_speak_of_flags_that_exist_or_are_retired() -> None:
    known = table("llamacpp", "b11434")
    flags = {knob.flag for knob in known.knobs}
    assert {flag for row in known.table.managed for flag in row.flags} <= flags
    assert {row.flag for row in known.table.deprecated} <= flags
    read = known.table.read
    assert all(
        known.table.key(row.removed) in read or known.table.key(row.removed) < read[0] for row in known.table.retired
    )


def test_retired_replacements_exist() -> None:
    known = table("llamacpp", "b11434")
    for row in (row for row in known.table.retired if row.replaced_by):
        first = row.replaced_by.replace(",", " ").split()[0]
        assert known.find(first), row.replaced_by


def test_the_law_knows_every_cache_dtype_of_the_table() -> None:
    for flag in ("cache-type-k", "cache-type-v"):
        found = table("llamacpp", "b11434").find(flag)
        assert found
        assert set(found[0].choices) == set(ROW_BLOCKS)


def test_a_flag_is_found_by_any_spelling_and_by_its_variable() -> None:
    known = table("llamacpp", "b11434")
    for key in ("c", "-c", "ctx-size", "--ctx-size", "ctx_size"):
        found = known.find(key)
        assert found
        assert found[0].flag == "ctx-size"
    by_env = known.find_env("LLAMA_ARG_NO_KV_UNIFIED")
    assert by_env
    assert by_env.flag == "kv-unified"
    assert known.find_env("LLAMA_ARG_NO_CTX_SIZE") is None
    assert known.find_env("PATH") is None


def test_a_near_miss_is_suggested_and_nonsense_is_not() -> None:
    assert table("llamacpp", "b11434").suggest("paralel") == "parallel"
    assert table("llamacpp", "b11434").suggest("qqqqqqqq") == ""


SWITCH = Knob("ui", "switch", "x", "x", ("--ui",), negatives=("--no-ui",))
BARE = Knob("offline", "bool", "x", "x", ("--offline",))
NUMBER = Knob("gpu-layers", "int", "x", "x", ("-ngl", "--gpu-layers"), words=("auto", "all"))
TEXT = Knob("alias", "str", "x", "x", ("--alias",))


@pytest.mark.parametrize(
    ("knob", "positive", "value", "argv"),
    [
        (SWITCH, True, True, ("--ui",)),
        (SWITCH, True, "off", ("--no-ui",)),
        (SWITCH, False, True, ("--no-ui",)),
        (SWITCH, False, False, ("--ui",)),
        (BARE, True, "1", ("--offline",)),
        (BARE, True, False, ()),
        (NUMBER, True, 7, ("--gpu-layers", "7")),
        (NUMBER, True, "7", ("--gpu-layers", "7")),
        (NUMBER, True, "2k", ("--gpu-layers", "2048")),
        (NUMBER, True, "-1", ("--gpu-layers", "-1")),
        (NUMBER, True, "all", ("--gpu-layers", "all")),
        (TEXT, True, "a b", ("--alias", "a b")),
        (TEXT, True, 7, ("--alias", "7")),
    ],
)
def test_values_are_rendered_as_the_engine_reads_them(
    knob: Knob, positive: bool, value: bool | int | str, argv: tuple[str, ...]
) -> None:
    assert render(knob.flag, knob, positive, value) == argv


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        (NUMBER, "12abc"),
        (NUMBER, 1.5),
        (NUMBER, True),
        (NUMBER, ""),
        (TEXT, ""),
        (TEXT, "a\nb"),
        (TEXT, "a\0b"),
        (BARE, 2),
    ],
)
def test_values_that_the_engine_would_misread_are_refused(knob: Knob, value: bool | int | float | str) -> None:
    with pytest.raises(DeclarationError) as refused:
        render(knob.flag, knob, True, value)
    assert refused.value.code == "knob-bad-value"


@given(st.one_of(st.booleans(), st.integers(), st.floats(), st.text(max_size=20)))
@example("0\x85\x00")  # str.split would take U+0085 for a blank
def test_any_value_of_any_knob_is_rendered_or_refused(value: bool | int | float | str) -> None:
    for knob in table("llamacpp", "b11434").knobs:
        argv = list[str]()
        assert _said(lambda k=knob, a=argv: a.extend(render(k.flag, k, True, value))) in ("", "knob-bad-value")
        assert all("\n" not in word and "\0" not in word for word in argv)


@given(st.one_of(st.booleans(), st.integers(), st.floats(), st.text()))
def test_readings_of_a_value_never_fail(value: bool | int | float | str) -> None:
    assert as_bool(value) in (True, False, None)
    assert as_int(value) is None or isinstance(as_int(value), int)


def test_a_table_without_rules_loads(tmp_path: Path) -> None:
    row = 'flag = "a"\nnames = ["--a"]\ntype = "int"\neffect = "e"\nsource = "s"\n'
    (tmp_path / "knobs.toml").write_text(f'engine = "vllm"\nversions = ["1"]\n[[knob]]\n{row}', encoding="utf-8")
    assert load_folder(tmp_path).knobs == (Knob("a", "int", "e", "s", ("--a",)),)


def test_a_row_with_an_unknown_key_is_a_fault(tmp_path: Path) -> None:
    row = 'flag = "a"\nnames = ["--a"]\ntype = "int"\neffect = "e"\nsource = "s"\ncolour = "red"\n'
    (tmp_path / "knobs.toml").write_text(f'engine = "vllm"\nversions = ["1"]\n[[knob]]\n{row}', encoding="utf-8")
    with pytest.raises(ValueError, match="colour"):
        load_folder(tmp_path)


def test_a_forecast_loads_no_table() -> None:
    program = (
        "import sys\n"
        "from archonctl.engines import adapter\n"
        "from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef\n"
        "from archonctl.host.profile import Host\n"
        "contract = Contract(seqs=3, len=8192)\n"
        "endpoint = Endpoint(contract=contract, engine=Engine(kind='llamacpp'), model=ModelRef(path='m'))\n"
        "adapter('llamacpp').forecast(endpoint, Host(), None)\n"
        "heavy = ('archonctl.engines.llamacpp.command', 'archonctl.engines.llamacpp.harvest', 'difflib')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
