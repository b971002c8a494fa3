"""The options that ``common_params_parser_init`` of common/arg.cpp gives to llama-server, and their handlers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

from llamacpp_source.cpp import Tokens, closing, split, tokens
from llamacpp_source.headers import read_constants, read_enumerators, read_structs, read_words
from llamacpp_source.values import UNKNOWN, Expression, Name, World, text_of

SERVER, COMMON = "LLAMA_EXAMPLE_SERVER", "LLAMA_EXAMPLE_COMMON"
ARG, HEADER = "common/arg.cpp", "common/common.h"
FILES = (
    ARG,
    HEADER,
    "common/common.cpp",
    "common/sampling.cpp",
    "common/chat.cpp",
    "common/speculative.cpp",
    "include/llama.h",
    "ggml/include/ggml.h",
)
"""What is read of a source tree; only the first two must be there."""


_SECTIONS = {"set_sparam": 1, "set_sampling": 1, "set_spec": 2}


@dataclass(frozen=True)
class Handler:
    """The lambda of an option: the C++ type of its value (``void``, ``bool``, ``int``, ``string``, ``pair``), the
    value's name and the body."""

    kind: str
    parameter: str
    body: Tokens


@dataclass
class Option:
    """One ``common_arg``."""

    names: tuple[str, ...]
    negatives: tuple[str, ...]
    hint: str
    help: str
    handler: Handler
    env: str = ""
    examples: set[str] = field(default_factory=lambda: {COMMON})
    excludes: set[str] = field(default_factory=set)
    preset_only: bool = False
    section: int = 0
    """Which part of the help it is in, apart from those of the program itself: common, sampling, speculative."""


def read_options(files: Mapping[str, str]) -> tuple[list[Option], World]:
    """Every option that llama-server takes, in the order of its help, and the names that its source uses.

    ``files`` holds the texts of ``FILES`` by path. Raises ValueError for a source that is laid out another way.
    """
    code = {path: tokens(text) for path, text in files.items()}
    world = _world(files, code)
    start = next(
        (
            i
            for i, token in enumerate(code[ARG])
            if token.is_id("common_params_parser_init") and _is_definition(code[ARG], i)
        ),
        None,
    )
    if start is None:
        raise ValueError(f"no common_params_parser_init in {ARG}")
    brace = next(i for i in range(start, len(code[ARG])) if code[ARG][i].is_op("{"))
    found = list(_walk(code[ARG][brace + 1 : closing(code[ARG], brace)], world))
    if not found:
        raise ValueError(f"no option in {ARG}")
    served = [option for option in found if option.examples & {SERVER, COMMON} and SERVER not in option.excludes]
    taken = [option for option in served if not option.preset_only]
    return sorted(taken, key=lambda option: option.section or 3 * (SERVER in option.examples)), world


def _is_definition(code: Tokens, index: int) -> bool:
    """True if a parameter list and then a body follow, not a call."""
    if not code[index + 1].is_op("("):
        return False
    end = closing(code, index + 1)
    return end + 1 < len(code) and code[end + 1].is_op("{")


def _world(files: Mapping[str, str], code: Mapping[str, Tokens]) -> World:
    constants: dict[str, Tokens] = {}
    words: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        constants |= read_constants(text, tokens)
        words |= read_words(code[path])
    world = World(read_structs(code[HEADER]), constants, words)
    for function in ("is_truthy", "is_falsey", "is_autoy"):
        world.lists[function] = _compared(code[ARG], function)
    world.lists["mmproj_examples"] = _array(code[ARG], "mmproj_examples", "id")
    world.variables["ex"] = Name(SERVER)
    world.variables["params.is_gen_docs"] = False
    for path, parsed in code.items():
        if path.endswith(".h"):
            world.enumerators |= read_enumerators(parsed)
    types = [name.removeprefix("GGML_TYPE_").lower() for name in _array(code[ARG], "kv_cache_types", "id")]
    world.variables["get_all_kv_cache_types()"] = ", ".join(types) if types else UNKNOWN
    drafts = _array(code.get("common/speculative.cpp", []), "common_speculative_type_from_name_map", "str")
    world.variables["common_speculative_all_types_str()"] = ",".join(drafts) if drafts else UNKNOWN
    return world


def _array(code: Tokens, name: str, kind: str) -> list[str]:
    """The words or texts in the initialiser of a table."""
    for index, token in enumerate(code):
        if token.is_id(name) and code[index + 1].is_op("=") and code[index + 2].is_op("{"):
            return [part.text for part in code[index + 3 : closing(code, index + 2)] if part.kind == kind]
    return []


def _compared(code: Tokens, function: str) -> list[str]:
    """The texts that a function of arg.cpp compares its argument with; none where there is no such function."""
    for index, token in enumerate(code):
        if token.is_id(function) and _is_definition(code, index):
            brace = closing(code, index + 1) + 1
            return [part.text for part in code[brace : closing(code, brace)] if part.kind == "str"]
    return []


def _walk(code: Tokens, world: World) -> Iterator[Option]:
    at = 0
    while at < len(code):
        token = code[at]
        if token.is_id("if") and code[at + 1].is_op("("):
            at = yield from _branch(code, at, world)
        elif token.is_id("for") and code[at + 1].is_op("("):
            _samplers(code, at, world)
            at = closing(code, closing(code, at + 1) + 1) + 1
        elif token.is_id("add_opt") and code[at + 1].is_op("("):
            end = closing(code, at + 1)
            yield _option(code[at + 2 : end], world)
            at = end + 1
        elif token.is_id("params") and code[at + 1].is_op("."):
            end = next(i for i in range(at, len(code)) if code[i].is_op(";"))
            _assign(code[at:end], world)
            at = end + 1
        elif token.is_op("{"):
            at = closing(code, at) + 1
        else:
            at += 1


def _branch(code: Tokens, at: int, world: World) -> Generator[Option, None, int]:
    """An ``if``: its block where the condition holds or is only known at run time, else the other block.

    Returns the index after both.
    """
    end = closing(code, at + 1)
    condition = Expression(world, code[at + 2 : end]).value()
    taken = condition is not False
    block = closing(code, end + 1)
    if taken:
        yield from _walk(code[end + 2 : block], world)
    at = block + 1
    while at < len(code) and code[at].is_id("else"):
        if code[at + 1].is_id("if"):
            if taken:
                at = closing(code, closing(code, at + 2) + 1) + 1
                continue
            return (yield from _branch(code, at + 1, world))
        block = closing(code, at + 1)
        if not taken:
            yield from _walk(code[at + 2 : block], world)
        at = block + 1
    return at


def _assign(statement: Tokens, world: World) -> None:
    left, *right = split(statement, "=")
    if right and all(token.kind == "id" or token.is_op(".") for token in left):
        world.variables["".join(token.text for token in left)] = Expression(world, right[0]).value()


def _samplers(code: Tokens, at: int, world: World) -> None:
    """``for (sampler : params.sampling.samplers) { chars += ...; names += ... + ";" }``"""
    path = [token.text for token in code[at + 2 : closing(code, at + 1)] if token.kind == "id"][-3:]
    samplers = world.member(path)
    if path[-1] == "samplers" and isinstance(samplers, list):
        for name, function, mark in (("chars", "chr", ""), ("names", "str", ";")):
            words = [
                world.words.get(f"common_sampler_type_to_{function}", {}).get(text_of(one), "") for one in samplers
            ]
            world.variables[f"sampler_type_{name}"] = mark.join(words) if all(words) else UNKNOWN


def _option(code: Tokens, world: World) -> Option:
    """``common_arg(...).set_x(...).set_y(...)``"""
    if not (code[0].is_id("common_arg") and code[1].is_op("(")):
        raise ValueError(f"add_opt of {code[0].text}, not of a common_arg")
    end = closing(code, 1)
    parts = list(split(code[2:end]))
    option = _constructed(parts, world)
    at = end + 1
    while at + 2 < len(code):
        name, end = code[at + 1].text, closing(code, at + 2)
        inner = code[at + 3 : end]
        if name == "set_env":
            option.env = text_of(Expression(world, inner).value())
        elif (field_name := name.removeprefix("set_")) in ("examples", "excludes"):
            listed = {token.text for token in inner if token.kind == "id"}
            listed |= {one for name in listed for one in world.lists.get(name, ())}
            setattr(option, field_name, listed)
        elif name == "set_preset_only":
            option.preset_only = True
        elif name in _SECTIONS:
            option.section = _SECTIONS[name]
        at = end + 1
    return option


def _constructed(parts: list[Tokens], world: World) -> Option:
    names, *rest = parts
    negatives = rest.pop(0) if rest[0][0].is_op("{") else []
    *hints, text, handler = rest
    shown = [text_of(Expression(world, hint).value()) for hint in hints]
    return Option(
        names=_strings(names),
        negatives=_strings(negatives),
        hint=" ".join(shown),
        help=text_of(Expression(world, text).value()),
        handler=_handler(handler),
    )


def _strings(code: Tokens) -> tuple[str, ...]:
    return tuple(dict.fromkeys(token.text for token in code if token.kind == "str"))


def _handler(code: Tokens) -> Handler:
    """``[](common_params & params, int value) { ... }``"""
    at = closing(code, 0) + 1
    end = closing(code, at)
    _, *values = split(code[at + 1 : end])
    brace = next(i for i in range(end, len(code)) if code[i].is_op("{"))
    body = code[brace + 1 : closing(code, brace)]
    if not values:
        return Handler("void", "", body)
    words = [token for token in values[0] if token.kind == "id"]
    if len(values) == 2:
        return Handler("pair", "", body)
    kind = next(word.text for word in words if word.text in ("int", "bool", "string"))
    named = words[-1].text if words[-1].text != kind else ""
    return Handler(kind, named, body)
