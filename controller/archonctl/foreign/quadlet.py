"""A Quadlet ``.container`` unit as the container that it starts."""

from __future__ import annotations

from archonctl.foreign.containers import Container, Option
from archonctl.foreign.units import Entry, Unit, split_unit_words
from archonctl.foreign.words import Command, Unread, Word

_OPTIONS = {
    "AddDevice": "device",
    "ContainerName": "name",
    "DropCapability": "cap-drop",
    "AddCapability": "cap-add",
    "EnvironmentFile": "env-file",
    "Entrypoint": "entrypoint",
    "GroupAdd": "group-add",
    "HealthCmd": "health-cmd",
    "HealthInterval": "health-interval",
    "HealthRetries": "health-retries",
    "HealthStartPeriod": "health-start-period",
    "HealthTimeout": "health-timeout",
    "HostName": "hostname",
    "IP": "ip",
    "Label": "label",
    "LogDriver": "log-driver",
    "Memory": "memory",
    "Mount": "mount",
    "Network": "network",
    "PublishPort": "publish",
    "Pull": "pull",
    "ShmSize": "shm-size",
    "StopSignal": "stop-signal",
    "StopTimeout": "stop-timeout",
    "Timezone": "tz",
    "Tmpfs": "tmpfs",
    "Ulimit": "ulimit",
    "User": "user",
    "Volume": "volume",
    "WorkingDir": "workdir",
}
"""Keys of ``[Container]`` by the option of ``podman run`` that they become (podman-systemd.unit(5))."""

_HANDLED = ("Image", "Exec", "Environment", "PodmanArgs", "RunInit", "SeccompProfile", "AutoUpdate")


def read_quadlet(unit: Unit) -> tuple[Container | None, Command, tuple[Unread, ...]]:
    """The container of a Quadlet, the arguments of its image, and keys that are not known here."""
    image = unit.last("Container", "Image")
    if image is None:
        return None, Command(()), ()
    options: list[Option] = []
    unread: list[Unread] = []
    for entry in unit.entries:
        if entry.section == "Container":
            options += _options(entry)
            if entry.key not in _OPTIONS and entry.key not in _HANDLED:
                reason = "a key of [Container] that is not read"
                unread.append(Unread(f"{entry.key}={entry.value.text}"[:80], reason, entry.line, entry.column))
    for setting in unit.environment("Container"):
        word = setting.value
        text = Word(f"{setting.name}={word.text}", word.line, word.column, word.unresolved)
        options.append(Option("env", text, word.line, word.column))
    exec_ = unit.last("Container", "Exec")
    words = tuple(_opened(word) for word in split_unit_words(exec_.value)) if exec_ else ()
    return Container("quadlet", _whole(image), tuple(options), words), Command(words, label="Exec"), tuple(unread)


def _options(entry: Entry) -> list[Option]:
    if entry.key == "PodmanArgs":
        found = []
        for word in split_unit_words(entry.value):
            name, _, value = _opened(word).text.removeprefix("--").partition("=")
            found.append(Option(name, Word(value, word.line, word.column), word.line, word.column))
        return found
    if entry.key == "SeccompProfile":
        profile = Word(f"seccomp={entry.value.text}", entry.line, entry.column)
        return [Option("security-opt", profile, entry.line, entry.column)]
    if entry.key in _OPTIONS and entry.value.text:
        return [Option(_OPTIONS[entry.key], _whole(entry), entry.line, entry.column)]
    return []


def _whole(entry: Entry) -> Word:
    text = entry.value.text
    if len(text) > 1 and text[0] == text[-1] == '"' and entry.key == "EnvironmentFile":
        text = text[1:-1]
    return _opened(Word(text, *entry.value.at(0)))


def _opened(word: Word) -> Word:
    """``%%`` and ``$$`` as themselves: the unit that is made of a Quadlet is expanded by systemd."""
    return Word(word.text.replace("%%", "%").replace("$$", "$"), word.line, word.column, word.unresolved)
