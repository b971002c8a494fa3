"""``vllm serve MODEL ...``: what FlexibleArgumentParser does to the words before argparse sees them.

Source: vllm/utils.py, vllm/utils/__init__.py and vllm/utils/argparse_utils.py of the releases 0.6.0 to 0.33.0.
"""

from __future__ import annotations

import json
import re

from packaging.version import Version

from archonctl.engines.knobs import vllm_values
from archonctl.engines.knobs.argparse_argv import ArgparseWalk, Positional, Word
from archonctl.engines.knobs.verdict import ArgvFinding, Judge
from archonctl.engines.knobs.versions import version_key

_UNDER = re.compile(r"(?<=--)[^.]*")
_NUMBER = re.compile(r"-\d*\.\d+(?:[eE][+-]?\d+)?", re.ASCII)
_DOTTED_SINCE = version_key("vllm", "0.9.0")
_SHORT_DOTTED_SINCE = version_key("vllm", "0.9.2")
"""From here ``-O.key`` too, and so a negative decimal looks like an option with a dotted key; ``-O3`` is its level."""
_OLD_KEY_SINCE, _OLD_KEY_UNTIL = version_key("vllm", "0.12.0"), version_key("vllm", "0.13.0")
_MODULE_MODEL_SINCE = version_key("vllm", "0.10.0")
"""From here the module parses a model without ``--model`` too, and does not serve it (api_server.py, ``__main__``)."""
_MODEL_FIRST_SINCE = version_key("vllm", "0.17.0")
"""From here --served-model-name without a model in the first place ends in a ValueError."""
_MODEL_OPTIONAL_SINCE = version_key("vllm", "0.8.3")
"""From here ``serve`` without a model serves a default one, and ``serve --model X`` ends in a ValueError."""
_MODEL_OPTION_SINCE = version_key("vllm", "0.11.1")
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
    model = _model_option(judge, words) if serve else False
    takes_model = not model if serve else judge.edition.table.key(judge.edition.version) >= _MODULE_MODEL_SINCE
    misread = vllm_values.misread_at(judge.edition.table.key(judge.edition.version))
    walk = ArgparseWalk(judge, words, misread, Positional(takes_model))
    walk.run()
    vllm_values.check(judge)
    judge.not_checked()
    if serve and not model and _model_comes_late(judge, words):
        message = f"{judge.engine} refuses --served-model-name where the model does not come first"
        judge.add(ArgvFinding("model-argument-missing", "error", message, "write serve MODEL before the options"))
    elif (walk.model is None or not serve) and not model:
        _no_model(judge, walk, serve=serve)


def _prepared(judge: Judge, start: int) -> list[Word]:
    """The words with dashes for underscores; dotted keys become JSON, which argparse gets behind all others."""
    key = judge.edition.table.key(judge.edition.version)
    words, behind, index = list[Word](), list[Word](), start
    while index < len(judge.argv):
        text = _without_old_key(judge.argv[index], key)
        if judge.is_open(index):
            words.append(Word(text, index))
        elif text.startswith("--help="):
            words.append(Word("--help", index))
        elif _is_dotted(text, key):
            if _NUMBER.fullmatch(text):
                _negative(judge, index)
                words.append(Word(text, index))
            else:
                index += _dotted(judge, behind, index, text)
        elif text.startswith("--"):
            head, equals, value = text.partition("=")
            words.append(Word(_dashed(head) + equals + value, index))
        elif text.startswith("-O"):
            index += _level(judge, words, behind, index)
        else:
            words.append(Word(text, index))
        index += 1
    return words + behind


def _without_old_key(text: str, key: Version) -> str:
    """``-O.key`` of old, which one more release took for ``-cc.key``."""
    return f"-cc{text[2:]}" if text.startswith("-O.") and _OLD_KEY_SINCE <= key < _OLD_KEY_UNTIL else text


def _is_dotted(text: str, key: Version) -> bool:
    since = _DOTTED_SINCE if text.startswith("--") else _SHORT_DOTTED_SINCE
    return text.startswith("-") and "." in text.partition("=")[0] and key >= since


def _level(judge: Judge, words: list[Word], behind: list[Word], index: int) -> int:
    """``-O3``, ``-O=3`` and ``-O 3``: an option of its own since 0.12.0, a key of a JSON option since 0.9.2."""
    text, took = judge.argv[index], 0
    level = text[2:].removeprefix("=")
    following = judge.argv[index + 1] if index + 1 < len(judge.argv) else ""
    own = "--optimization-level" in judge.edition.options
    keyed = judge.edition.table.key(judge.edition.version) >= _SHORT_DOTTED_SINCE
    if not level and following in ("0", "1", "2", "3") and (own or keyed):
        level, took = following, 1
    if not level:
        words.append(Word(text, index))
    elif own:
        words.append(Word(f"--optimization-level={level}", index))
    elif keyed:
        behind += [Word("-O", index, dotted=True), Word(json.dumps({"level": level}), index, dotted=True)]
    else:
        words.append(Word(f"-O={level}", index))
    return took


def _negative(judge: Judge, index: int) -> None:
    text = judge.argv[index]
    message = f"{judge.engine} takes {text} for an option with a dotted key, not for a number"
    judge.add(ArgvFinding("knob-form", "error", message, f"write OPTION={text} as one word", index), certain=judge.read)


def _dashed(option: str) -> str:
    return _UNDER.sub(lambda found: found[0].replace("_", "-"), option, count=1)


def _dotted(judge: Judge, behind: list[Word], index: int, text: str) -> int:
    """``--compilation-config.level 3`` as argparse gets it; 1 if the next word was taken for the value."""
    head, equals, value = text.partition("=")
    option, *keys = head.removesuffix("+").split(".")
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
    behind += [Word(_dashed(option), index, dotted=True), Word(json.dumps(nested), index, dotted=True)]
    return took


def _model_option(judge: Judge, words: list[Word]) -> bool:
    """``--model X`` behind serve: True where it names the model, so that there is no place for another."""
    key = judge.edition.table.key(judge.edition.version)
    for word in words:
        name, equals, _ = word.text.partition("=")
        if name != "--model":
            continue
        if key >= _MODEL_OPTION_SINCE:
            message = f"{judge.engine} takes the model as the first argument of serve; --model is on its way out"
            judge.add(ArgvFinding("knob-deprecated", "warning", message, "write serve MODEL", word.index))
            return True
        if not (equals and key >= _MODEL_OPTIONAL_SINCE):  # with = it slips through from there on
            message = f"serve of {judge.engine} refuses --model: it takes the model as its first argument"
            judge.add(ArgvFinding("knob-form", "error", message, "write serve MODEL", word.index), certain=judge.read)
            return key >= _MODEL_OPTIONAL_SINCE
    return False


def _model_comes_late(judge: Judge, words: list[Word]) -> bool:
    key = judge.edition.table.key(judge.edition.version)
    first = judge.argv[1] if len(judge.argv) > 1 else ""
    opened = any(kind == "words" for kind in judge.open_words.values())
    names = {word.text.partition("=")[0] for word in words}
    return (
        key >= _MODEL_FIRST_SINCE
        and first.startswith("-")
        and not opened
        and "--served-model-name" in names
        and "--config" not in names
    )


def _no_model(judge: Judge, walk: ArgparseWalk, *, serve: bool) -> None:
    """No word names the model; an option may (not behind serve before 0.8.3), and so may a file or a variable."""
    default = not serve or judge.edition.table.key(judge.edition.version) >= _MODEL_OPTIONAL_SINCE
    named = {"config", "help", "model"} if default else {"config", "help"}
    if judge.seen.keys() & named or judge.open_words:
        return
    what = "serves its own default model" if default else "refuses to start"
    if walk.model is not None:  # a module's positional is parsed and never looked at
        message = (
            f"the server module of {judge.engine} parses {walk.model.text[:60]!r} and serves its own default model"
        )
        fix = f"write --model {walk.model.text[:60]}"
        judge.add(ArgvFinding("model-argument-missing", "error", message, fix, walk.model.index))
        return
    by = f" ({walk.swallowed} takes every word up to the next option)" if walk.swallowed else ""
    where, fix = ("behind serve", "serve MODEL before the options") if serve else ("is named", "--model MODEL")
    message = f"no model {where}: {judge.engine} {what}{by}"
    judge.add(ArgvFinding("model-argument-missing", "error", message, f"write {fix}"))
