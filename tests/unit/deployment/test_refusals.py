"""What is no declaration: one error each, with its line, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.problems import KeyProblem
from archonctl.errors import ArchonError, DeclarationError

GOOD = '[contract]\nseqs = 3\nlen = 200000\n[engine]\nkind = "radiance"\n[model]\npath = "m"\n'


def refusal(path: Path) -> DeclarationError:
    with pytest.raises(DeclarationError) as caught:
        load_endpoint(path, {}, {})
    return caught.value


def outcome(
    path: Path, flags: dict[str, object] | None = None, variables: dict[str, str] | None = None
) -> ArchonError | None:
    try:
        load_endpoint(path, flags or {}, variables or {})
    except ArchonError as err:
        return err
    return None


@pytest.mark.parametrize(
    ("raw", "code", "line"),
    [
        (b"", "declaration-empty", None),
        (b" \n\t\n", "declaration-empty", None),
        (b"\xef\xbb\xbf" + GOOD.encode(), "declaration-invalid-toml", 1),
        (GOOD.encode("utf-16"), "declaration-invalid-toml", 1),
        (GOOD.encode() + b"# caf\xe9\n", "declaration-not-utf8", 8),
        (GOOD.encode() + b"x = = 3\n", "declaration-invalid-toml", 8),
        (GOOD.encode() + b"[contract]\n", "declaration-invalid-toml", 8),
        (GOOD.encode()[:-4], "declaration-invalid-toml", 7),
        (b"<!doctype html>\n<html></html>\n", "declaration-invalid-toml", 1),
        (b"x = " + b"[" * 100_000, "declaration-invalid-toml", None),
        (b"x = " + b"{a=" * 100_000, "declaration-invalid-toml", None),
        (b"x" + b".x" * 300_000 + b" = 1\n", "declaration-invalid-toml", 1),
        (b"x = " + b"9" * 5000 + b"\n", "declaration-invalid-toml", None),
        (b"\0" * 4096, "declaration-invalid-toml", 1),
        (b"#" * (1 << 20) + b"\n", "declaration-too-large", None),
    ],
)
def test_a_file_that_is_no_toml_is_one_error(tmp_path: Path, raw: bytes, code: str, line: int | None) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(raw)
    found = refusal(path)
    assert found.code == code
    assert found.where == (f"{path}:{line}" if line else str(path))
    assert "\n" not in str(found)


def test_missing_directory_pipe_and_dangling_paths_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "nothing.toml").code == "declaration-not-found"
    assert refusal(Path("/dev/null/x")).code == "declaration-not-found"
    for name in ("", "pipe", "loop", "x\0y", "n" * 300):
        assert refusal(tmp_path / name).code == "declaration-unreadable"


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(GOOD)
    path.chmod(0)
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom archonctl.deployment.load import load_endpoint\n"
        "from archonctl.errors import DeclarationError\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: load_endpoint(Path(sys.argv[1]), {}, {}, cwd=Path('/'))\n"
        "except DeclarationError as err: print(err.code)\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "declaration-unreadable", done.stderr


@pytest.mark.parametrize(
    ("old", "new", "code", "text"),
    [
        ("seqs = 3", "seqs = 0", "out-of-range", "contract.seqs is 0, expected a whole number from 1 to 65,536"),
        ("seqs = 3", "seqs = -1", "out-of-range", "is -1"),
        ("seqs = 3", "seqs = 1_000_000_000", "out-of-range", "is 1,000,000,000"),
        ("seqs = 3", "seqs = 3.0", "wrong-type", "contract.seqs is 3.0, expected a whole number"),
        ("seqs = 3", "seqs = true", "wrong-type", "is true"),
        ("seqs = 3", 'seqs = "three"', "wrong-type", "is the text 'three'"),
        ("seqs = 3", "seqs = [3]", "wrong-type", "is an array of 1"),
        ("seqs = 3", "seqs = 1979-05-27", "wrong-type", "is a date"),
        ("seqs = 3", "seqs = 0x" + "f" * 5000, "out-of-range", "a number of 20,000 bits"),
        ("seqs = 3", "seqs = 3\nmargin = nan", "out-of-range", "contract.margin is nan"),
        ("seqs = 3", "seqs = 3\nkv_dtype = 'F16 '", "bad-value", "expected a KV dtype"),
        ('kind = "radiance"', 'kind = "Radiance"', "bad-value", "(did you mean radiance?)"),
        ('kind = "radiance"', 'kind = "radiance"\nctx-size = 3', "unknown-key", "engine.knobs], as ctx-size"),
        ('kind = "radiance"', 'kind = "radiance"\nimage = "a"\nbinary = "b"', "contradiction", "engine.binary"),
        ('kind = "radiance"', 'kind = "radiance"\nknobs = {a-b = 1, a_b = 2}', "contradiction", "a-b is set twice"),
        ('kind = "radiance"', 'kind = "radiance"\nknobs = {"--x" = 1}', "bad-value", "without the leading dashes"),
        ('kind = "radiance"', 'kind = "radiance"\nknobs = {x = [1]}', "wrong-type", "text, a number, true or false"),
        ('kind = "radiance"', 'kind = "radiance"\nenv = {"A B" = "1"}', "bad-value", "a variable's name"),
        ('kind = "radiance"', 'kind = "radiance"\nmounts = [3]', "wrong-type", "engine.mounts[0] is 3, expected text"),
        ('kind = "radiance"', 'kind = "radiance"\nmounts = 3', "wrong-type", "expected an array of texts"),
        ('path = "m"', 'path = "a\\u0000b"', "bad-value", "control characters"),
        ('path = "m"', "path = '''a\nb'''", "bad-value", "control characters"),
        ('path = "m"', 'path = "m"\nbytes = -3', "out-of-range", "a whole number above 0 and up to"),
        ('path = "m"', 'path = "m"\nsha256 = "ABC"', "bad-value", "64 lower-case hex digits"),
        ('path = "m"', "", "missing-key", "model.path is missing, expected text"),
        ('[model]\npath = "m"', "", "missing-key", "model is missing, expected a table"),
        ('[model]\npath = "m"', "model = 3", "unknown-key", "engine.model"),
        ('path = "m"', 'path = "m"\n[host]\nprofile = "x"\ndetect = true', "contradiction", "host.detect"),
        ('path = "m"', 'path = "m"\n[service]\nlisten = "127.0.0.1:99999"', "out-of-range", "port 99999"),
        ('path = "m"', 'path = "m"\n[service]\nlisten = "8000"', "bad-value", "host:port"),
        ('path = "m"', 'path = "m"' + '\n[[predict]]\nname="a"\nexpect=1' * 2, "contradiction", "'a'"),
        ("[contract]", "seqs = 3\n[contract]", "unknown-key", "it belongs in [contract]"),
        ("[contract]", "'a\\nb\x7fc' = 3\n[contract]", "invalid-toml", "is not valid TOML"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_error_with_its_line_and_what_was_expected(
    tmp_path: Path, old: str, new: str, code: str, text: str
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(GOOD.replace(old, new))
    found = refusal(path)
    assert f"declaration-{code}" in [p.code for p in getattr(found, "problems", (found,))], str(found)
    assert text in str(found)
    assert str(path) in found.where
    assert str(found).isprintable() or "\n" in str(found)


def test_a_problem_carries_key_got_and_expected(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(GOOD.replace("seqs = 3", "seqs = 0"))
    found = refusal(path)
    assert isinstance(found, KeyProblem)
    assert found.as_dict() == {
        "code": "declaration-out-of-range",
        "message": "contract.seqs is 0, expected a whole number from 1 to 65,536",
        "where": f"{path}:2",
        "hint": "",
        "key": "contract.seqs",
        "got": "0",
        "expected": "a whole number from 1 to 65,536",
    }


@settings(max_examples=150, deadline=None)
@given(cut=st.integers(0, len(GOOD)), junk=st.text(max_size=12), at=st.integers(0, len(GOOD)))
def test_no_half_written_or_garbled_file_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: str, at: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbled.toml"
    path.write_text((GOOD[:at] + junk + GOOD[at:])[: cut + len(junk)], encoding="utf-8", errors="surrogatepass")
    error = outcome(path)
    assert error is None or (error.exit_code == 2 and str(path) in str(error))


_KEYS = st.sampled_from(
    [
        "contract.seqs",
        "contract.len",
        "contract.margin",
        "contract",
        "engine.knobs.x",
        "engine.knobs",
        "model.bytes",
        "host.detect",
        "predict",
        "service.listen",
        "x",
        "engine.env.A",
        "boot",
        "a.b.c.d",
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    flags=st.dictionaries(
        _KEYS, st.text(max_size=8) | st.integers() | st.floats() | st.booleans() | st.none(), max_size=3
    ),
    variables=st.dictionaries(
        _KEYS.map(lambda key: "ARCHON__" + key.replace(".", "__").upper()),
        st.text(max_size=8)
        | st.sampled_from(["{}", "[]", '{"a":{"b":1}}', "3", "null", '[{"name":1}]', "NaN", '{"knobs":[]}']),
        max_size=3,
    ),
)
def test_no_flag_or_variable_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, flags: dict[str, object], variables: dict[str, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "good.toml"
    path.write_text(GOOD)
    error = outcome(path, flags, variables)
    assert error is None or (error.exit_code == 2 and error.code)
