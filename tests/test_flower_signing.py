"""Signatures over apps, the accounts' file, and the page that says what is defended."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from pathlib import Path

import pytest
from flwr.supercore.fab import Fab
from flwr.supernode.start_client_internal import _verify_fab

from isfl.cli import main
from isfl.engines.flower.access import ACCOUNTS, CREDENTIALS, add_account, remove_account, stored_token
from isfl.engines.flower.apps import SIGNATURES, TRUSTED, app_files, bundle, sign, signatures, trusted_entities
from isfl.engines.flower.deployment import up
from isfl.errors import UserError
from isfl.experiment.submission import store_token

ROOT = Path(__file__).parent.parent


def test_a_signature_is_over_every_byte_of_the_app(tmp_path: Path) -> None:
    """Flower's own check, which a node makes before it unpacks an app."""
    other = tmp_path / "other"
    other.mkdir()
    content, digest = bundle(app_files()), sign(tmp_path)
    found, trusted = signatures(tmp_path / SIGNATURES)[digest], trusted_entities(tmp_path / TRUSTED)
    assert hashlib.sha256(content).hexdigest() == digest == sign(tmp_path) == sign(other)
    assert _verify_fab(Fab(digest, content, found), trusted)
    assert not _verify_fab(Fab(digest, content + b" ", found), trusted)
    assert not _verify_fab(Fab(digest, content, found), trusted_entities(other / TRUSTED))


@pytest.mark.parametrize("content", ["", "{}", "[1]", "fpk_1: ssh-rsa AAAA", "fpk_1: 7", "a: b: c"])
def test_a_node_needs_at_least_one_key_that_it_trusts(content: str, tmp_path: Path) -> None:
    """Without one, Flower would run any app."""
    (tmp_path / TRUSTED).write_text(content)
    with pytest.raises(UserError, match=TRUSTED):
        trusted_entities(tmp_path / TRUSTED)


def test_the_file_of_accounts_does_not_reveal_tokens(tmp_path: Path) -> None:
    tokens = [add_account(tmp_path, name) for name in ("alice", "bob", "alice")]
    assert len({*tokens}) == 3 and not any(token in (tmp_path / ACCOUNTS).read_text() for token in tokens)
    remove_account(tmp_path, "alice")
    with pytest.raises(UserError, match=r"unknown; .* has bob"):
        remove_account(tmp_path, "alice")
    for directory, name, wrong in ((tmp_path, "../alice", "use letters"), (tmp_path / "x", "alice", "no such dir")):
        with pytest.raises(UserError, match=wrong):
            add_account(directory, name)


def test_a_token_goes_from_the_server_to_the_home_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In files that only their owner can read."""
    address, file = "fl.example.org:8000", tmp_path / "alice.token"
    (tmp_path / "config.toml").write_text(f'[superlink.production]\naddress = "{address}"\n')
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    for command in (["account", "alice", "--dir", str(tmp_path)], ["login", "production", str(file)]):
        with pytest.raises(SystemExit) as ending:
            main(["flower", *command])
        assert ending.value.code in (None, 0)
    assert stored_token(tmp_path, address) == file.read_text()
    for secret in (file, tmp_path / CREDENTIALS):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.parametrize("broken", ["[superlink.production]\nadress = 3\n", "[superlink.production]\naddress ="])
def test_a_damaged_flower_configuration_is_one_line(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(broken)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"config\.toml: superlink\.production\.address cannot be read \("):
        store_token("production", tmp_path / "alice.token")


def test_a_secured_federation_of_an_earlier_version_is_not_started(tmp_path: Path) -> None:
    known = {"clients": 1, "secure": True, "port": 1, "data": []}
    (tmp_path / "deployment.json").write_text(json.dumps(known))
    with pytest.raises(UserError, match="an earlier version made"):
        up(tmp_path, 1, secure=True, tell=print)


@pytest.mark.parametrize(
    ("page", "begin", "end"),
    [
        ("security.md", "## What is defended", "## What is not defended"),
        ("secure-aggregation.md", "## What the server learns", "**Not defended:**"),
    ],
)
def test_every_row_of_the_security_pages_names_a_test_that_exists(page: str, begin: str, end: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("test_*.py"))
    defended = text[text.index(begin) : text.index(end)]
    rows = [line for line in defended.splitlines() if line.startswith("|") and not line.endswith(("---|", "| test |"))]
    assert len(rows) > 10
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named, row
        assert all(f"def {name}(" in tests for name in named), row
