"""The walk over argparse's words against argparse itself, on tables made up for it."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archonctl.engines.knobs import Edition, Knob, KnobTable
from archonctl.engines.knobs.argparse_argv import ArgparseWalk, Positional, Word
from archonctl.engines.knobs.reading import python
from archonctl.engines.knobs.row import KnobType
from archonctl.engines.knobs.verdict import ArgvFinding, Judge


def knob(
    *names: str, kind: KnobType = "str", nargs: int | str = "", negatives: tuple[str, ...] = (), **columns: object
) -> Knob:
    flag = next(name for name in names if name.startswith("--"))[2:]
    cells = {"flag": flag, "type": kind, "effect": "x", "source": "x", "names": names, "nargs": nargs}
    return Knob(**{**cells, "negatives": negatives, **columns})  # type: ignore[arg-type]


KNOBS = (
    knob("--max-num-seqs", kind="int"),
    knob("--max-num-batched-tokens", kind="int"),
    knob("--max-model-len", kind="int"),
    knob("--tensor-parallel-size", "-tp", kind="int"),
    knob("--enforce-eager", kind="bool"),
    knob("--prefix-caching", kind="switch", negatives=("--no-prefix-caching",)),
    knob("--kv-cache-dtype", choices=("auto", "fp8")),
    knob("--quantization", "-q"),
    knob("--served-model-name", nargs="+"),
    knob("--api-key", nargs="*"),
    knob("--ratio", kind="float", nargs="?"),
    knob("--host"),
    knob("-O", "--level"),
    knob("--range", kind="int", nargs=2),
)
TABLE = KnobTable("sglang", ("1.0",), KNOBS)


def real(argv: Sequence[str], positional: str) -> str:
    """What argparse says; empty if it takes the words."""
    parser = argparse.ArgumentParser(add_help=False)
    if positional:
        parser.add_argument("model", nargs=None if positional == "required" else "?")
    for row in KNOBS:
        kinds = {"int": int, "float": float}
        if row.type == "switch":
            parser.add_argument(*row.names, action=argparse.BooleanOptionalAction)
        elif row.type == "bool":
            parser.add_argument(*row.names, action="store_true")
        else:
            nargs = row.nargs or None
            parser.add_argument(
                *row.names,
                type=kinds.get(row.type, str),
                nargs=nargs,
                choices=row.choices or None,  # type: ignore[arg-type]
            )
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parser.parse_args(list(argv))
        except SystemExit:
            return said.getvalue().splitlines()[-1]
    return ""


def ours(argv: Sequence[str], positional: str) -> list[ArgvFinding]:
    judge = Judge(Edition(TABLE, "1.0"), argv, {})
    words = [Word(text, at) for at, text in enumerate(argv)]
    walk = ArgparseWalk(judge, words, python, Positional(bool(positional)))
    walk.run()
    if positional == "required" and walk.slot:
        judge.add(ArgvFinding("model-argument-missing", "error", "no model"))
    return [finding for finding in judge.findings if finding.severity == "error"]


_WORDS = st.one_of(
    st.sampled_from(
        [name for row in KNOBS for name in (*row.names, *row.negatives)]
        + ["--max-num", "--max-num-s", "--enf", "--no-pre", "-t", "--q", "--m", "--kv", "--unknown", "-x", "-"]
        + ["--max-num-seqs=4", "-tp=2", "-tp2", "-O3", "-qawq", "--enforce-eager=1", "--kv-cache-dtype=fp8", "--ratio="]
        + ["--max-num-seqs 4", "--host=a b", "--api-key=", "--range=1", "--foo=1", "-1", "-.5", "-1e5", "1 2"]
    ),
    st.sampled_from(["4", "fp8", "auto", "0.5", "m", "true", "a b", "", "x=y", "{}", "1_000", " 7", "nan"]),
)


@pytest.mark.parametrize("positional", ["", "optional", "required"])
@settings(max_examples=150)
@given(argv=st.lists(_WORDS, max_size=8))
@example(argv=["--max-num-seqs"])
@example(argv=["--served-model-name", "a", "m"])
def test_the_verdict_is_argparses_own(positional: str, argv: list[str]) -> None:
    said = real(argv, positional)
    found = ours(argv, positional)
    if said:
        assert found, said
    # argparse serves the model "true" or "--host x"; here that is a value that went astray.
    assert said or not found or {finding.code for finding in found} & {"knob-glued", "knob-takes-no-value"}, found
