"""The configuration of a run: a TOML file, checked, with every default filled in."""

from __future__ import annotations

import difflib
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from isfl.data import DataSettings
from isfl.data.splits import AnySplit
from isfl.data.splits.mixed import MixedSplit
from isfl.errors import UserError
from isfl.federation.attacks.none import NoAttack
from isfl.federation.settings import Settings
from isfl.models import ModelSettings
from isfl.schema import Part

SHORT = reprlib.Repr()
"""Writes values for error messages."""
SHORT.maxstring = SHORT.maxother = 200


class FlowerSettings(Part):
    """Settings of runs on Flower; the local engine ignores them."""

    own_data: bool = Field(
        False,
        description="every client trains on the data that its node configuration names; `split` is not used, `data` "
        "names the public set and the test set, which the server holds",
    )
    clients: int | None = Field(
        None,
        ge=1,
        description="with `own_data`: number of clients; the first round waits for all that it needs",
    )
    min_clients: int = Field(
        1, ge=1, description="a round waits until this many clients are connected, at most `wait_seconds`"
    )
    wait_seconds: float = Field(
        300.0,
        gt=0,
        description="longest wait for clients to connect. A round, or a resumed run, then continues with those "
        "connected if there are at least `min_clients`; otherwise the run stops. Before the first round, the targets "
        "`global`, `local` and `noised` need all clients",
    )
    reply_seconds: float = Field(3600.0, gt=0, description="longest time a client may take to reply")


class Config(Settings):
    """One run: the settings of the federation, and its data, split and model."""

    data: DataSettings = DataSettings()
    split: AnySplit = MixedSplit()
    model: ModelSettings = ModelSettings()
    flower: FlowerSettings = FlowerSettings()

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, raw: Any) -> Any:
        """Accept `flower.evaluate_share`, which is `training.evaluate_clients` since it holds for every engine.

        1 was its default, which resolved configurations have; it becomes today's.
        """
        flower, training = (raw.get(key) or {} for key in ("flower", "training")) if isinstance(raw, dict) else ({}, {})
        if not isinstance(flower, dict) or not isinstance(training, dict) or "evaluate_share" not in flower:
            return raw
        share = flower["evaluate_share"]
        if (
            training.get("evaluate_clients") not in (None, share)
            or not isinstance(share, int | float)
            or not 0 <= share <= 1
        ):
            raise ValueError(
                f"flower.evaluate_share = {_shown(share)} is now training.evaluate_clients, a share between 0 and 1: "
                "write only that"
            )
        kept = {key: value for key, value in flower.items() if key != "evaluate_share"}
        moved = {} if share == 1 else {"evaluate_clients": share}
        return {**raw, "flower": kept, "training": {**training, **moved}}

    @model_validator(mode="after")
    def _clients_are_counted_once(self) -> Self:
        if self.flower.own_data != (self.flower.clients is not None):
            raise ValueError(
                "flower.own_data and flower.clients go together: with own_data, flower.clients is the number of "
                "clients; otherwise split has it"
            )
        return self

    @model_validator(mode="after")
    def _attacks_and_latencies_are_simulated(self) -> Self:
        if self.flower.own_data and not isinstance(self.attack, NoAttack):
            raise ValueError(
                f"attack.kind = {self.attack.kind!r} is a simulation, and flower.own_data = true has real clients; "
                "leave [attack] out"
            )
        if self.flower.own_data and self.stragglers is not None and self.stragglers.simulated is not None:
            raise ValueError(
                "stragglers.simulated is a simulation, and flower.own_data = true has real clients, whose answers come "
                "when they come; leave [stragglers.simulated] out"
            )
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file and apply `key.path=value` overrides."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give the path of a TOML configuration") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as text ({error})") from None
    return parse_config(text, str(path), overrides)


def parse_config(text: str, name: str, overrides: Sequence[str] = ()) -> Config:
    """Parse TOML text like `load_config`; error messages begin with `name`."""
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers too long and tables nested too deep
        raise UserError(f"{name}: not valid TOML: {error}") from None
    for override in overrides:
        apply(raw, override)
    return config_from(raw, name)


def config_from(raw: Mapping[str, Any], name: str) -> Config:
    """Check a nested dictionary; the first mistake becomes a `UserError` of one line."""
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{name}: {_explain(error, raw)}") from None


def apply(raw: dict[str, Any], override: str) -> None:
    """Set `key.path=value` in a nested dictionary; the value is TOML, or a word."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--set {override}: write key=value, for instance --set training.rounds=10")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()  # an unquoted word
    *parents, last = path.strip().split(".")
    table = raw
    for key in parents:
        inner = table.setdefault(key, {})
        if key == "scheme" and isinstance(inner, str):  # scheme = "isfl" is short for {name = "isfl"}
            inner = table[key] = {"name": inner}
        if not isinstance(inner, dict):
            raise UserError(f"--set {override}: {key!r} is {inner!r}, not a table")
        table = inner
    table[last] = value


def _explain(error: ValidationError, raw: Mapping[str, Any]) -> str:
    problems = error.errors()
    first = problems[0]
    absent = first["type"] in ("missing", "extra_forbidden")
    key = _key(first["loc"], raw, absent)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "unknown key" + _suggestion(key)
    elif first["type"] == "missing":
        message = "is required"
    elif first["type"] == "union_tag_not_found":
        message = f"needs the key {first['ctx']['discriminator']}, which selects the kind"
    elif first["type"] == "union_tag_invalid":
        key = f"{key}.{first['ctx']['discriminator'].strip(chr(39))}"
        message = f"found {_shown(first['ctx']['tag'])}; choose one of {first['ctx']['expected_tags']}"
    elif first["type"] == "model_type":
        message = f"found {_shown(first['input'])}; input should be a table, [{key}]"
    elif first["type"] != "value_error":
        message = f"found {_shown(first['input'])}; {message[0].lower()}{message[1:]}"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{key}: {message}{more}" if key else f"{message}{more}"


def _shown(value: Any) -> str:
    """Return a value as Python writes it; what is long or deeply nested is cut."""
    return SHORT.repr(value)


def _key(location: tuple[int | str, ...], raw: Any, absent: bool) -> str:
    """Return the path as the user wrote it, without the tags that pydantic adds for the chosen kind.

    `absent`: the last step is a key that is missing or unknown.
    """
    names: list[str] = []
    for i, step in enumerate(location):
        inside = isinstance(raw, Mapping) and step in raw
        inside |= isinstance(raw, Sequence) and isinstance(step, int)
        if inside or (absent and i == len(location) - 1):
            names.append(str(step))
        if inside:
            raw = raw[step]
    return ".".join(names)


def _suggestion(key: str) -> str:
    word = key.rsplit(".", 1)[-1]
    close = difflib.get_close_matches(word, sorted(_all_keys(Config) - {word}), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _all_keys(model: type[Part]) -> set[str]:
    """Return all keys of the configuration, at any depth."""
    schema = model.model_json_schema()
    tables = [schema, *schema.get("$defs", {}).values()]
    return {key for table in tables for key in table.get("properties", {})}
