"""The base of everything a user can write into a configuration."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """Settings are frozen values; an unknown key is an error, not a surprise."""

    model_config = ConfigDict(extra="forbid", frozen=True)
