"""``vllm serve MODEL ...``: what FlexibleArgumentParser does to the words before argparse sees them.

Source: vllm/utils.py, vllm/utils/__init__.py and vllm/utils/argparse_utils.py of the releases 0.6.0 to 0.33.0.
"""

from __future__ import annotations

import json
import re

from archonctl.engines.knobs.argparse_argv import ArgparseWalk, Positional, Word
from archonctl.engines.knobs.reading import python
from archonctl.engines.knobs.verdict import ArgvFinding, Judge
from archonctl.engines.knobs.versions import version_key

_UNDER = re.compile(r"(?<=--)[^.]*")
_DOTTED_SINCE = version_key("vllm", "0.9.0")
_MODEL_OPTIONAL_SINCE = version_key("vllm", "0.8.3")
"""From here ``serve`` without a model serves a default one, and ``serve --model X`` ends in a ValueError."""
_MODEL_OPTION_SINCE = version_key("vllm", "0.20.0")
"""From here ``serve --model X`` is taken, with a warning."""


def walk(judge: Judge, *, module: bool) -> None:
    """Judge ``serve MODEL ...``; with ``module`` the words of ``python -m vllm.entrypoints.openai.api_server``."""
    start = 0
    if not module and judge.argv and not judge.argv[0].startswith("-"):
        if judge.argv[0] != "serve":
            message = f"{judge.argv[0][:60]!r} is no way to serve with vLLM, only serve is judged"
            judge.stray(0, message, "begin with serve MODEL")
            return
        start = 1
    serve = start == 1
    words = _prepared(judge, start)
    by_option = _model_option(judge, words) if serve else None
    walk = ArgparseWalk(judge, words, python, Positional(serve and by_option is None))
    walk.run()
    if "config" in judge.seen:
        message = "the options in the file of --config are not looked into"
        judge.add(
            ArgvFinding("knob-not-checked", "note", message, "write them on the command line", judge.seen["config"])
        )
    if serve and walk.slot and by_option is None and "config" not in judge.seen:
        _no_model(judge, walk)


def _prepared(judge: Judge, start: int) -> list[Word]:
    """The words with dashes for underscores, dotted keys folded into one JSON option each."""
    key = judge.edition.table.key(judge.edition.version)
    words, index = list[Word](), start
    while index < len(judge.argv):
        text = judge.argv[index]
        if judge.is_open(index):
            words.append(Word(text, index))
        elif text.startswith("--help="):
            words.append(Word("--help", index))
        elif text.startswith("-") and key >= _DOTTED_SINCE and "." in text.partition("=")[0] and not _number(text):
            index += _dotted(judge, words, index)
        elif text.startswith("--"):
            head, equals, value = text.partition("=")
            words.append(
                Word(_UNDER.sub(lambda found: found[0].replace("_", "-"), head, count=1) + equals + value, index)
            )
        elif text.startswith("-O") and len(text) > 2:
            words.append(Word(f"-O={text[2:].removeprefix('=')}", index))
        else:
            words.append(Word(text, index))
        index += 1
    return words


def _dashed(option: str) -> str:
    return _UNDER.sub(lambda found: found[0].replace("_", "-"), option, count=1)


def _number(text: str) -> bool:
    return re.fullmatch(r"-\d*\.\d+([eE][+-]?\d+)?", text, re.ASCII) is not None


def _dotted(judge: Judge, words: list[Word], index: int) -> int:
    """``--compilation-config.level 3`` as argparse gets it; 1 if the next word was taken for the value."""
    head, equals, value = judge.argv[index].partition("=")
    option, *keys = head.removesuffix("+").split(".")
    option = _dashed(option)
    took = 0
    if not equals:
        if index + 1 >= len(judge.argv):
            message = f"{head} takes a value, and nothing follows"
            judge.add(ArgvFinding("knob-lacks-value", "error", message, f"write {head} VALUE", index))
            return 0
        value, took = judge.argv[index + 1], 1
    nested: object = value
    for name in reversed(keys):
        nested = {name: nested}
    words.append(Word(f"{option}={json.dumps(nested)}", index, dotted=True))
    return took


def _model_option(judge: Judge, words: list[Word]) -> int | None:
    """``--model X`` behind serve: the index of the option where it names the model."""
    for word in words:
        name, equals, _ = word.text.partition("=")
        if name != "--model":
            continue
        key = judge.edition.table.key(judge.edition.version)
        if key >= _MODEL_OPTION_SINCE:
            message = f"{judge.engine} takes the model as the first argument of serve; --model is on its way out"
            judge.add(ArgvFinding("knob-deprecated", "warning", message, "write serve MODEL", word.index))
            return word.index
        if key >= _MODEL_OPTIONAL_SINCE:
            if equals:
                return word.index
            message = f"serve of {judge.engine} refuses --model: it takes the model as its first argument"
            judge.add(ArgvFinding("knob-form", "error", message, "write serve MODEL", word.index), certain=judge.read)
            return word.index
    return None


def _no_model(judge: Judge, walk: ArgparseWalk) -> None:
    if any(kind == "words" for kind in judge.open_words.values()):
        return
    key = judge.edition.table.key(judge.edition.version)
    what = "serves its own default model" if key >= _MODEL_OPTIONAL_SINCE else "refuses to start"
    by = f" ({walk.swallowed} takes every word up to the next option)" if walk.swallowed else ""
    message = f"no model behind serve: {judge.engine} {what}{by}"
    judge.add(ArgvFinding("model-argument-missing", "error", message, "write serve MODEL before the options"))
