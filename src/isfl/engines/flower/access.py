"""Who may start runs: accounts with tokens, checked by the SuperLink at every call of Flower's Control API."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from logging import INFO, WARNING
from pathlib import Path

from flwr.cli.constant import ACCESS_TOKEN_STORE_KEY, AUTHN_TYPE_STORE_KEY, REFRESH_TOKEN_STORE_KEY
from flwr.common.constant import ACCESS_TOKEN_KEY, NOOP_ACCOUNT_NAME, NOOP_FLWR_AID, AuthnType
from flwr.supercore import log
from flwr.supercore.auth.typing import AccountAuthCredentials, AccountAuthLoginDetails, AccountInfo
from flwr.supercore.credential_store.file_credential_store import FileCredentialStore
from flwr.supercore.utils import get_metadata_str
from flwr.superlink.auth_plugin import ControlAuthnPlugin

from isfl.errors import UserError
from isfl.files import write_whole

ACCOUNTS = "accounts.json"
"""Name of an account -> SHA-256 of its token, which has 256 random bits: the file does not reveal it."""
CREDENTIALS = "credentials.yaml"
"""Flower's file of tokens, in a Flower home."""

Metadata = Sequence[tuple[str, str | bytes]]


class TokenAccounts(ControlAuthnPlugin):
    """Flower's plugin for accounts: a call needs the token of an account in the file, which is read at every call.

    To Flower, all are one account: its open-source version knows only one owner of nodes and runs.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def validate_tokens_in_metadata(self, metadata: Metadata) -> tuple[bool, AccountInfo | None]:
        """Return whether the call has the token of an account."""
        token = get_metadata_str(metadata, ACCESS_TOKEN_KEY)
        name = None if token is None else _owner(accounts(self.file), token)
        if name is None:
            log(WARNING, "refused a call without the token of an account")
            return False, None
        log(INFO, "a call of the account %s", name)
        return True, AccountInfo(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME)

    def get_login_details(self) -> AccountAuthLoginDetails | None:
        """Return None: tokens are handed over by the operator, not by a login page."""
        return None

    def get_auth_tokens(self, device_code: str) -> AccountAuthCredentials | None:
        return None

    def refresh_tokens(self, metadata: Metadata) -> tuple[Metadata | None, AccountInfo | None]:
        return None, None


def _owner(known: dict[str, str], token: str) -> str | None:
    digest = _digest(token)
    found = [name for name, other in known.items() if hmac.compare_digest(digest, other)]
    return found[0] if found else None


def accounts(file: Path) -> dict[str, str]:
    """Return the accounts: name -> SHA-256 of the token."""
    if not file.exists():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    return {str(name): str(digest) for name, digest in content.items()}


def add_account(directory: Path, name: str) -> str:
    """Give an account a new token and return it; an older token of the account is no longer valid."""
    if not re.fullmatch(r"[\w.@-]+", name):
        raise UserError(f"account {name!r}: use letters, digits and . _ @ -")
    if not directory.is_dir():
        raise UserError(f"{directory}: no such directory; give the SuperLink's")
    token = secrets.token_urlsafe(32)
    _write(directory / ACCOUNTS, {**accounts(directory / ACCOUNTS), name: _digest(token)})
    return token


def remove_account(directory: Path, name: str) -> None:
    """Remove an account; the SuperLink refuses its token from the next call on."""
    known = accounts(directory / ACCOUNTS)
    if name not in known:
        raise UserError(f"account {name!r}: unknown; {directory / ACCOUNTS} has {', '.join(known) or 'none'}")
    _write(directory / ACCOUNTS, {other: digest for other, digest in known.items() if other != name})


def log_in(home: Path, address: str, token: str) -> None:
    """Store a token in a Flower home, where `flwr` finds it for this address; only its owner can read the file."""
    store = FileCredentialStore(home / CREDENTIALS)
    store.set(AUTHN_TYPE_STORE_KEY % address, AuthnType.OIDC.encode())
    store.set(ACCESS_TOKEN_STORE_KEY % address, token.encode())
    store.set(REFRESH_TOKEN_STORE_KEY % address, b"none")  # Flower sends tokens only in pairs


def stored_token(home: Path, address: str) -> str | None:
    """Return the token that a Flower home has for this address."""
    token = FileCredentialStore(home / CREDENTIALS).get(ACCESS_TOKEN_STORE_KEY % address)
    return None if token is None else token.decode()


def _write(file: Path, content: dict[str, str]) -> None:
    write_whole(file, json.dumps(content, indent=2).encode())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
