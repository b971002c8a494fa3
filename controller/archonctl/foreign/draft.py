"""An engine start as a declaration, and everything of it that a declaration cannot say or a person must."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from archonctl.deployment.schema import KnobValue, parse_count
from archonctl.deployment.secrets import has_url_password, is_secret_flag, is_secret_variable
from archonctl.foreign.arguments import Argument, flags_of, read_arguments, typed
from archonctl.foreign.container_keys import ContainerKeys, container_keys
from archonctl.foreign.start import Start
from archonctl.foreign.words import Unread, Word

PLACEHOLDER_LEN = 4096
_VERSION = {
    "llamacpp": re.compile(r"(?:^|-)(b[0-9]{3,6})$"),
    "vllm": re.compile(r"^v?([0-9]+\.[0-9]+(?:\.[0-9]+)?(?:\.?(?:post|rc)[0-9]+)?)(?:[-+].*)?$"),
    "sglang": re.compile(r"^v?([0-9]+\.[0-9]+(?:\.[0-9]+)?(?:\.?(?:post|rc)[0-9]+)?)(?:[-+].*)?$"),
    "radiance": re.compile(r"^v?([0-9]+\.[0-9]+\.[0-9]+)(?:[-+].*)?$"),
}
"""Where an image's tag says the version."""


@dataclass
class Draft:
    """A declaration in the making: tables as TOML has them, and what is left to a person."""

    name: str
    engine: str
    data: dict[str, dict[str, Any]]
    path: str = ""
    unread: list[Unread] = field(default_factory=list)

    def leave(self, text: str, reason: str, word: Word | None = None) -> None:
        """Note what is not in the declaration, or is in it as a placeholder."""
        self.unread.append(Unread(text[:80], reason, word.line if word else 0, word.column if word else 0))


@cache
def _words() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("engine_words.toml").read_text(encoding="utf-8"))


def draft(start: Start, version: str = "") -> Draft:
    """The declaration of one start. ``version`` is the engine's, where a person knows it and the file does not say."""
    launch = start.launch
    found = Draft(start.name, launch.kind, {"contract": {}, "engine": {}, "model": {}}, start.path)
    found.unread += start.unread
    if launch.conditional:
        found.leave(launch.label, "it is only started in some runs")
    engine: dict[str, Any] = {"kind": launch.kind, "version": version or _version(found, start)}
    found.data["engine"] = engine
    keys = container_keys(launch.container, start.base) if launch.container else ContainerKeys()
    found.unread += keys.unread
    if launch.container:
        engine["image"] = launch.container.image.text
        if "@sha256:" not in engine["image"]:
            found.leave(
                engine["image"],
                "not pinned: put the image's digest (name@sha256:...) in its place",
                launch.container.image,
            )
    else:
        engine["binary"] = _binary(found, start)
    arguments = _arguments(found, start, engine["version"])
    _model(found, start, arguments, keys)
    _contract(found, arguments)
    _service(found, start, arguments, keys)
    _knobs(found, arguments)
    _environment(found, start)
    _container(found, keys)
    return found


def _version(found: Draft, start: Start) -> str:
    container = start.launch.container
    tag = container.image.text.partition("@")[0].rpartition(":")[2] if container else ""
    match = _VERSION[start.launch.kind].search(tag) if "/" not in tag else None
    if match is None:
        ask = f"{start.launch.program.text} --version" if container is None else "look into the image"
        found.leave("engine.version", f"not said anywhere: fill it in ({ask})")
    return match[1] if match else ""


def _binary(found: Draft, start: Start) -> str:
    program = start.launch.program
    name = PurePosixPath(program.text).name
    if program.unresolved:
        found.leave(program.text, "the program is not known from the file alone", program)
    if start.launch.kind == "vllm" and name.startswith("python"):
        binary = str(PurePosixPath(program.text).with_name("vllm"))
        found.leave(program.text, f"run as a module; the declaration runs {binary} serve", program)
        return binary
    return program.text


def _arguments(found: Draft, start: Start, version: str) -> dict[str, Argument]:
    """The engine's arguments by flag, the last of two; llama-server's own variables count as flags."""
    known = flags_of(found.engine, version)
    words = start.launch.arguments
    arguments: dict[str, Argument] = {}
    if found.engine == "vllm":
        words = words[1:]
        if words and not words[0].text.startswith("-"):
            arguments["model"] = Argument("model", words[0].text, words[0])
            words = words[1:]
    for setting in start.launch.env:
        knob = known.find_env(setting.name) if known and found.engine == "llamacpp" else None
        if knob and knob.names and setting.name.startswith("LLAMA_ARG_"):
            negative = "_ARG_NO_" in setting.name and knob.env_key != setting.name
            value = _switch(setting.value.text, negative) if knob.type in ("bool", "switch") else None
            text = typed(setting.value.text, knob) if value is None else value
            arguments[knob.flag] = Argument(knob.flag, text, setting.value)
    listed, unread = read_arguments(found.engine, words, known)
    found.unread += unread
    for argument in listed:
        arguments[argument.flag] = argument
    return {flag: argument for flag, argument in arguments.items() if not _refused(found, argument)}


def _switch(text: str, negative: bool) -> bool:
    return (text.strip().lower() in ("1", "true", "on", "enabled")) != negative


def _refused(found: Draft, argument: Argument) -> bool:
    """True, and said, for a secret and for a value that only a run settles."""
    if is_secret_flag(f"--{argument.flag}") or has_url_password(str(argument.value)):
        found.leave(f"--{argument.flag}", "a secret, which is not copied: put it into a file of its own", argument.word)
        return True
    if argument.word.unresolved:
        open_ = ", ".join(argument.word.unresolved)
        found.leave(f"--{argument.flag} {argument.value}", f"{open_} is not known from the file alone", argument.word)
        return True
    if argument.word.assumed:
        names = ", ".join(argument.word.assumed)
        found.leave(f"--{argument.flag} {argument.value}", f"the default of {names} is taken", argument.word)
    if argument.word.conditional:
        found.leave(f"--{argument.flag}", "it is only given in some runs, and is in the declaration", argument.word)
    return False


def _model(found: Draft, start: Start, arguments: dict[str, Argument], keys: ContainerKeys) -> None:
    words = _words()[found.engine]
    model = arguments.pop(words["path"], None)
    if model is None:
        found.leave("model.path", "no model is named: a placeholder stands in its place")
        found.data["model"] = {"path": "/models/FILL-IN"}
    else:
        path = str(model.value)
        on_host = keys.on_host(path) or path
        if on_host.startswith(".") or (found.engine in ("llamacpp", "radiance") and not on_host.startswith(("/", "~"))):
            on_host = str(start.base / on_host)
        found.data["model"] = {"path": on_host}
        keys.covered(on_host)
    served = arguments.pop(words["served_name"], None)
    if served:
        found.data["model"]["served_name"] = str(served.value)


def _contract(found: Draft, arguments: dict[str, Argument]) -> None:
    words = _words()[found.engine]
    seqs = _count(found, arguments.pop(words["seqs"], None))
    length = _count(found, arguments.pop(words["len"], None))
    contract: dict[str, Any] = {"seqs": seqs or 1, "len": length or 0}
    if not seqs or seqs < 0:
        contract["seqs"] = words["default_seqs"] if found.engine == "llamacpp" else 1
        said = (
            f"the engine's own default is {words['default_seqs']}" if words["default_seqs"] else "the engine derives it"
        )
        found.leave("contract.seqs", f"--{words['seqs']} is not given ({said}): {contract['seqs']} is a placeholder")
        if words["default_seqs"] and found.engine != "llamacpp":
            arguments[words["seqs"]] = Argument(words["seqs"], words["default_seqs"], Word(""))
    if found.engine == "llamacpp" and contract["len"] > 0:
        unified = arguments.get("kv-unified")
        shared = (unified is not None and unified.value is True) or not seqs
        contract["len"] //= contract["seqs"]
        if shared:
            found.leave(
                "contract.len", f"the cache is shared: {contract['len']:,} is an even part of it, a slot may take all"
            )
    if contract["len"] <= 0:
        contract["len"] = _trained(found) or PLACEHOLDER_LEN
        what = "the model's trained context" if contract["len"] != PLACEHOLDER_LEN else "a placeholder"
        found.leave("contract.len", f"--{words['len']} is not given: {contract['len']:,} is {what}")
    contract["len"] = max(16, contract["len"])
    contract["kv_dtype"] = _dtype(found, arguments)
    found.data["contract"] = contract


def _count(found: Draft, argument: Argument | None) -> int:
    if argument is None:
        return 0
    text = str(argument.value)
    # "32k" is 32,000 to vLLM and SGLang, "32K" 32,768 (their own human_readable_int)
    human = re.fullmatch(r"([0-9]+)(k|m)", text)
    value = int(human[1]) * {"k": 1000, "m": 1_000_000}[human[2]] if human else parse_count(text)
    if not isinstance(value, int):
        found.leave(f"--{argument.flag} {text}", "no whole number", argument.word)
        return 0
    return value


def _trained(found: Draft) -> int:
    """The trained context, where the model lies here and can be read."""
    from archonctl.errors import ArchonError
    from archonctl.model.inspect import inspect_model

    try:
        facts = inspect_model(found.data["model"]["path"])
    except ArchonError:
        return 0
    return facts.geometry.trained_context if facts.geometry else 0


def _dtype(found: Draft, arguments: dict[str, Argument]) -> str:
    words = _words()[found.engine]
    if found.engine == "llamacpp":
        k, v = (
            str(a.value) if (a := arguments.pop(f"cache-type-{side}", None)) else words["default_dtype"]
            for side in "kv"
        )
        return k if k == v else f"{k}/{v}"
    argument = arguments.pop(words["dtype"], None)
    said = str(argument.value).lower() if argument else words["default_dtype"]
    dtype = str(words.get("dtypes", {}).get(said, said))
    if not re.fullmatch(r"[a-z0-9_]+", dtype):
        found.leave(f"--{words['dtype']} {said}", "no name of a dtype", argument.word if argument else None)
        return "f16"
    return dtype


def _service(found: Draft, start: Start, arguments: dict[str, Argument], keys: ContainerKeys) -> None:
    words = _words()[found.engine]
    host, _, port = words["listen"].rpartition(":")
    said_host, said_port = arguments.pop("host", None), arguments.pop("port", None)
    host = str(said_host.value) if said_host else host
    port = str(said_port.value) if said_port else port
    published = keys.published(port)
    if published:
        host, outer = published
        if outer != port:
            found.leave(f"{outer}:{port}", f"published as {outer}; the declaration has one port, on both sides")
        port = outer
    if not port.isdecimal() or not 1 <= int(port) <= 65_535:
        found.leave(
            f"--port {port}", "no port: a placeholder stands in its place", said_port.word if said_port else None
        )
        port = words["listen"].rpartition(":")[2]
    service: dict[str, Any] = {"listen": f"{f'[{host}]' if ':' in host else host}:{port}"}
    if start.user and start.user != "root":
        service["user"] = start.user
    if start.load_timeout_s:
        service["load_timeout_s"] = start.load_timeout_s
    key = arguments.pop(words.get("api_key_file", ""), None)
    if key:
        service["api_key_file"] = keys.on_host(str(key.value)) or str(key.value)
        keys.covered(service["api_key_file"])
    found.data["service"] = service


def _knobs(found: Draft, arguments: Mapping[str, Argument]) -> None:
    knobs: dict[str, KnobValue] = {}
    known = flags_of(found.engine, str(found.data["engine"]["version"]))
    for flag, argument in arguments.items():
        if not argument.known and known is not None:
            found.leave(f"--{flag}", "the knob table of that version has no such flag", argument.word)
            continue
        entry = known.find(flag) if known else None
        managed = known.find_managed(entry[0]) if known and entry else None
        if managed is not None:
            reason = f"{managed.reason}: {managed.instead}"
            found.leave(f"--{flag} {argument.value}", reason, argument.word)
            continue
        knobs[flag] = argument.value
    if knobs:
        found.data["engine"]["knobs"] = knobs


def _environment(found: Draft, start: Start) -> None:
    env: dict[str, str] = {}
    for setting in start.launch.env:
        if is_secret_variable(setting.name, setting.value.text or "?"):
            found.leave(setting.name, "a secret, which is not copied: put it into a file of its own", setting.value)
        elif setting.inherited:
            found.leave(setting.name, "its value comes from whoever starts it", setting.value)
        elif setting.value.unresolved:
            found.leave(setting.name, f"{setting.value.unresolved[0]} is not known from the file alone", setting.value)
        elif not (found.engine == "llamacpp" and setting.name.startswith("LLAMA_ARG_")):
            env[setting.name] = setting.value.text
    if env:
        found.data["engine"]["env"] = env


def _container(found: Draft, keys: ContainerKeys) -> None:
    if keys.mounts:
        found.data["engine"]["mounts"] = keys.mounts
    if keys.table:
        found.data["container"] = keys.table
