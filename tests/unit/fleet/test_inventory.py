"""An Ansible inventory as ansible-inventory reads it: which hosts, their variables, and clear errors with places."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import ArchonError, DeclarationError, UsageError
from archonctl.fleet.facts import facts_file, facts_folder, profile_of
from archonctl.fleet.inventory import Inventory, ansible_program, natural, read_inventory

INI = """
[gpus]
gpu[1:11] archon_host_profile=profiles/gpu.toml
[cpus]
cpu1 ansible_host=10.0.0.9
[site:children]
gpus
cpus
[gpus:vars]
archon_endpoints='["env/chat.toml"]'
secret_token=hunter2
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "env").mkdir()
    (folder / "env" / "chat.toml").touch()
    (folder / "hosts.ini").write_text(INI)
    return read_inventory([str(folder / "hosts.ini")], os.environ)


def _read(folder: Path, data: object, limit: str = "") -> Inventory:
    (folder / "hosts.yml").write_text(data if isinstance(data, str) else json.dumps(data))
    return read_inventory([str(folder / "hosts.yml")], os.environ, limit)


def test_hosts_come_in_the_order_of_their_numbers_with_groups_and_variables(read: Inventory) -> None:
    assert [host.name for host in read.hosts] == ["cpu1", *(f"gpu{n}" for n in range(1, 12))]
    gpu = read.host("gpu2")
    assert gpu.groups == ("gpus", "site")
    assert gpu.endpoints[0].name == "chat"
    assert gpu.endpoints[0].declaration.is_file()
    assert gpu.profile == Path(read.sources[0]).parent / "profiles" / "gpu.toml"
    assert read.host("cpu1").address == "10.0.0.9"
    assert set(read.groups["site"]) == {host.name for host in read.hosts}


def test_variables_that_are_none_of_ours_are_not_kept(read: Inventory) -> None:
    assert "hunter2" not in repr(read)


def test_a_host_that_is_not_there_is_told_with_the_nearest_name(read: Inventory) -> None:
    with pytest.raises(UsageError, match=r"fleet-host-unknown.*did you mean gpu1"):
        read.host("gpuu1")


def test_a_folder_with_host_vars_and_a_limit(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("[a]\nx1\nx2\n[b]\ny1\n")
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "x2.yml").write_text(
        "archon_endpoints:\n  - {declaration: env/c.toml, cards: [3, 1], share_cards: true}\n"
    )
    found = read_inventory([str(tmp_path)], os.environ, "a,y*,!x1")
    assert [host.name for host in found.hosts] == ["x2", "y1"]
    (one,) = found.hosts[0].endpoints
    assert (one.declaration, one.cards, one.share_cards) == (tmp_path / "env" / "c.toml", (3, 1), True)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"archon_endpoints": 7}, "archon_endpoints is 7, expected a list"),
        ({"archon_endpoints": ["a.toml", "b/a.toml"]}, "'a' twice"),
        ({"archon_endpoints": [{"file": "a.toml"}]}, "a table with 'file'"),
        ({"archon_endpoints": [{"declaration": "a.toml", "card": [0]}]}, "did you mean cards"),
        ({"archon_endpoints": [{"declaration": "a.toml", "cards": [0, 0]}]}, "each once"),
        ({"archon_endpoints": [{"declaration": "a.toml", "cards": [True]}]}, "card indices"),
        ({"archon_endpoints": [{"declaration": "a.toml", "cards": [-1]}]}, "card indices"),
        ({"archon_endpoints": [{"cards": [0]}]}, "declaration is nothing"),
        ({"archon_endpoints": ["{{ where }}/a.toml"]}, "templates"),
        ({"archon_endpoints": ["a\0.toml"]}, "the path of a file"),
        ({"archon_host_profile": ["a"]}, "archon_host_profile is an array"),
    ],
)
def test_what_is_wrong_with_one_host_hides_no_other(tmp_path: Path, variables: dict[str, object], said: str) -> None:
    found = _read(tmp_path, {"all": {"hosts": {"bad": variables, "good": {"archon_endpoints": "c.toml"}}}})
    bad, good = found.hosts
    assert isinstance(bad.problem, DeclarationError)
    assert bad.problem.code == "fleet-variable-invalid"
    assert "host bad" in bad.problem.where
    assert said in str(bad.problem)
    assert good.problem is None
    assert [one.name for one in good.endpoints] == ["c"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("all:\n  hosts:\n    x: {a: [}\n", "fleet-inventory-invalid"),
        ("all: {hosts: {}}\n", "fleet-inventory-empty"),
        ("- a\n- b\n", "fleet-inventory-invalid"),
    ],
)
def test_an_inventory_that_is_none_is_an_error(tmp_path: Path, text: str, code: str) -> None:
    with pytest.raises(ArchonError) as caught:
        _read(tmp_path, text)
    assert caught.value.code == code
    assert "hosts.yml" in caught.value.where


def test_a_mistake_in_it_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"hosts\.yml:3: ansible-inventory cannot read it"):
        _read(tmp_path, "all:\n  hosts:\n    x: {a: [}\n")


def test_a_limit_that_names_nothing_is_an_error_and_no_empty_fleet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fleet-host-unknown"):
        _read(tmp_path, {"all": {"hosts": {"x": {}}}}, "y")


def test_without_ansible_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"fleet-ansible-missing.*archonctl\[fleet\]"):
        read_inventory(["x,"], {"PATH": str(tmp_path)})
    with pytest.raises(UsageError, match="fleet-inventory-not-found"):
        read_inventory([str(tmp_path / "nothing")], os.environ)


@given(st.text(min_size=1, max_size=80))
def test_the_file_of_a_host_lies_in_the_folder_whatever_the_host_is_called(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = facts_file(Path("/facts"), name)
    assert path.parent == Path("/facts")
    assert path.suffix == ".toml"
    assert "\0" not in str(path)
    assert natural(name) == natural(name)


def test_a_declared_profile_counts_before_what_was_gathered(tmp_path: Path, read: Inventory) -> None:
    facts = facts_folder(["a"], {"XDG_CACHE_HOME": str(tmp_path)})
    assert facts.is_relative_to(tmp_path)
    assert facts != facts_folder(["b"], {"XDG_CACHE_HOME": str(tmp_path)})
    facts.mkdir(parents=True)
    assert profile_of(read.host("cpu1"), facts) is None
    facts_file(facts, "cpu1").touch()
    assert profile_of(read.host("cpu1"), facts) == facts_file(facts, "cpu1")
    assert profile_of(read.host("gpu1"), facts) == read.host("gpu1").profile


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r"fleet-inventory-not-found.*a pipe"):
        read_inventory([str(tmp_path / "pipe")], os.environ)


def test_a_limit_that_leaves_nobody_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"fleet-inventory-empty.*'!x' leaves none of 1 hosts"):
        _read(tmp_path, {"all": {"hosts": {"x": {}}}}, "!x")


def test_hosts_on_which_nothing_lies_are_no_good_news(tmp_path: Path) -> None:
    found = _read(tmp_path, {"all": {"hosts": {"x": {"archon_endpoint": "a.toml", "archon_secrets": []}}}})
    with pytest.raises(UsageError, match=r"fleet-nothing-declared.*archon_endpoint is no variable of ours"):
        found.refuse_idle()
    _read(tmp_path, {"all": {"hosts": {"x": {}, "y": {"archon_endpoints": 7}}}}).refuse_idle()


VAULTED = "$ANSIBLE_VAULT;1.1;AES256\n" + "31" * 40 + "\n"


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: a group_vars file that is encrypted, its password, another one, and a key encrypted by itself."""
    folder = tmp_path_factory.mktemp("vault")
    path = folder / "site" / "group_vars" / "g.yml"
    path.parent.mkdir(parents=True)
    (folder / "site" / "hosts.yml").write_text("g:\n  hosts:\n    x[01:03]:\n")
    (folder / "password").write_text("right-4711\n")
    (folder / "wrong").write_text("wrong-4711\n")
    key = textwrap.indent(VAULTED, " " * 6)
    secret = f"- path: /etc/archon/c.key\n    content: !vault |\n{key}"
    path.write_text(f"archon_endpoints: [c.toml]\narchon_secrets:\n  {secret}ansible_become_password: S3cret\n")
    program = ansible_program("ansible-vault", os.environ)
    command = [program, "encrypt", "--vault-password-file", folder / "password", path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def test_encrypted_variables_are_opened_by_the_password_that_is_named(vault: Path, run_cli: Any) -> None:
    gate = ("fleet", "gate", "-i", vault / "site", "--facts", vault / "facts", "--json")
    opened = run_cli(*gate, "--vault-password-file", vault / "password")
    assert [len(host["endpoints"]) for host in json.loads(opened.stdout)["hosts"]] == [1, 1, 1]
    by_name = run_cli(*gate, "--vault-id", f"prod@{vault / 'password'}")
    assert (by_name.code, json.loads(by_name.stdout)["hosts"]) == (opened.code, json.loads(opened.stdout)["hosts"])
    for words in ((), ("--vault-password-file", vault / "wrong"), ("--vault-password-file", vault / "nothing")):
        refused = run_cli(*gate, *words)
        assert (refused.code, json.loads(refused.stdout)["error"]["code"]) == (2, "fleet-inventory-invalid")
        assert "4711" not in refused.stdout + refused.stderr
        assert "S3cret" not in refused.stdout + refused.stderr + opened.stdout + opened.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"archon_host_profile": {"__ansible_vault": VAULTED}},
        {"archon_endpoints": [{"declaration": "a.toml", "env": {"HF_TOKEN": {"__ansible_vault": VAULTED}}}]},
    ],
)
def test_a_value_that_is_encrypted_by_itself_is_told_where_it_belongs(
    tmp_path: Path, variables: dict[str, object]
) -> None:
    found = _read(tmp_path, {"all": {"hosts": {"x": variables}}}).hosts[0]
    assert found.problem is not None
    assert "encrypted by ansible-vault" in found.problem.message
    assert "archon_secrets" in found.problem.hint
