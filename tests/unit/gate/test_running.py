"""What runs against what is rendered, from values alone."""

from __future__ import annotations

import pytest

from archonctl.gate.running import Observed, Wanted, options, running_findings

WANTED = Wanted(
    "llamacpp",
    ("/usr/bin/llama-server", "-m", "/m.gguf", "--ctx-size", "8192", "--temp", "-1", "--jinja"),
    {"LLAMA_ARG_THREADS": "4", "OMP_NUM_THREADS": "8"},
    "r.example/x@sha256:" + "a" * 64,
)


def said(**seen: object) -> list[tuple[str, str]]:
    found = running_findings(WANTED, Observed("pid 42", **seen))  # type: ignore[arg-type]
    assert all(one.place.path == "pid 42" for one in found)
    return [(one.code, one.message) for one in found]


def test_the_same_is_no_drift_and_what_was_not_seen_is_not_claimed() -> None:
    assert said() == []
    environ = {**WANTED.environ, "PATH": "/bin", "INVOCATION_ID": "x"}
    assert said(argv=list(WANTED.argv), environ=environ, image_digest="sha256:" + "a" * 64) == []


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("/usr/bin/llama-server", "-m", "/m.gguf", "--ctx-size", "4096", "--temp", "-1", "--jinja"),
         "--ctx-size runs as '4096', '8192' is declared"),
        (("/usr/bin/llama-server", "-m", "/m.gguf", "--ctx-size", "8192", "--temp", "-1"),
         "--jinja is declared, the running command line does not have it"),
        ((*WANTED.argv, "--mlock"), "--mlock runs, the declaration does not render it"),
        (("/opt/llama-server", *WANTED.argv[1:]), "the program runs as '/opt/llama-server', '/usr/bin/"),
        (("/usr/bin/llama-server", "--jinja", *WANTED.argv[1:-1]), "another order"),
        ((), "the running command line does not have it"),
    ],
)  # fmt: skip
def test_each_option_that_differs_is_named(argv: tuple[str, ...], message: str) -> None:
    found = said(argv=argv)
    assert {code for code, _ in found} == {"drift-argv"}
    assert any(message in text for _, text in found)


def test_the_environment_is_compared_where_it_matters() -> None:
    found = said(environ={"LLAMA_ARG_THREADS": "2", "LLAMA_ARG_CTX_SIZE": "1", "SECRET": "s"})
    assert [text for _, text in found] == [
        "LLAMA_ARG_THREADS is '2' in the process, '4' is rendered",
        "OMP_NUM_THREADS=8 is rendered, the process does not have it",
        "LLAMA_ARG_CTX_SIZE is set in the process, and nothing renders it",
    ]


def test_another_image_is_drift() -> None:
    assert [code for code, _ in said(image_digest="r.example/x@sha256:" + "b" * 64)] == ["drift-image"]


def test_a_negative_number_is_a_value() -> None:
    assert options(("p", "--a", "-1", "--b=2", "--b", "3", "-")) == {
        "the program": ("p",),
        "--a": ("-1",),
        "--b": ("2", "3", "-"),
    }
