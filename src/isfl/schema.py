"""The base of everything a user can write into a configuration."""

from typing import Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Part(BaseModel):
    """Settings are frozen, finite values of the right type; an unknown key is an error, not a surprise."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def default_choice(key: str, value: str) -> BeforeValidator:
    """A table that does not say which kind it is means the default one: `[split] clients = 5` is a mixed split."""

    def fill(given: Any) -> Any:
        return {key: value, **given} if isinstance(given, dict) else given

    return BeforeValidator(fill)
