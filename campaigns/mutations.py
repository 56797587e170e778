"""Random changes of bytes, text and trees of values: what a careless user, a bad disk or a hostile sender produces."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

WORDS = (
    *("0", "-1", "1", "2.5", "nan", "inf", "-inf", "1e308", "1e-320", "99999999999999999999999", "0x10", "1_000"),
    *(
        "true",
        "null",
        "''",
        '""',
        "[]",
        "{}",
        "[[]]",
        "[1,2",
        "'isfl'",
        "\x00",
        "\ufeff",
        "ä€𝄞",
        "\\",
        "\n",
        "\t",
        ";;",
    ),
    *(
        "x" * 3000,
        "[" * 300,
        "[" * 5000,
        "{a=" * 100,
        "9" * 5000,
        "1979-05-27",
        "module:function",
        "../../..",
        "/dev/null",
    ),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 2.5, float("nan"), float("inf"), -float("inf"), 1e308, 10**30, -(2**63), 2**63),
    *(
        "",
        "isfl",
        "x" * 3000,
        "\x00",
        "ä€𝄞",
        "nan",
        [],
        {},
        [[]],
        [None],
        [1, "a"],
        {"": 0},
        [0.5] * 50,
        [float("nan")],
    ),
)


def changed_bytes(content: bytes, chance: random.Random) -> bytes:
    """Change a file as a disk, an editor or a transfer may."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(7):
            case 0:
                data = data[:place]
            case 1:
                data[place : place + chance.randint(1, 40)] = b""
            case 2:
                data[place:place] = chance.randbytes(chance.randint(1, 40))
            case 3:
                data[place:place] = data[: chance.randint(0, 400)]
            case 4:
                data[place:place] = chance.choice(WORDS).encode()
            case _ if data:
                data[place % len(data)] ^= 1 << chance.randrange(8)
    return bytes(data)


def changed_text(text: str, chance: random.Random) -> str:
    """Change words and lines of a text."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        place = chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                lines.insert(place, lines[chance.randrange(len(lines))])
            case 1:
                del lines[place]
            case 2:
                lines[place], lines[0] = lines[0], lines[place]
            case 3:
                lines[place] = lines[place][: chance.randint(0, len(lines[place]))] + chance.choice(WORDS)
            case _:
                lines[place] = _other_word(lines[place], chance)
        text = "\n".join(lines)
    return text


def _other_word(line: str, chance: random.Random) -> str:
    for mark in chance.sample("=,: ", 4):
        if mark in line:
            words = line.split(mark)
            words[chance.randrange(len(words))] = chance.choice(WORDS)
            return mark.join(words)
    return chance.choice(WORDS)


def changed_tree(tree: Any, chance: random.Random, values: Sequence[Any] = VALUES) -> Any:
    """Change some values of nested dictionaries and lists."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 2, 4))):
        act, holder = _somewhere(tree, chance), chance.choice(values)
        act(copy.deepcopy(holder) if chance.random() < 0.97 else _deep(chance.choice((50, 400))))
    return tree


def _somewhere(tree: Any, chance: random.Random) -> Callable[[Any], None]:
    """Return a function that puts a value at a random place of the tree."""
    node = tree
    while True:
        if isinstance(node, dict) and node:
            key: Any = chance.choice(list(node))
        elif isinstance(node, list) and node:
            key = chance.randrange(len(node))
        else:
            return lambda value: None
        if not (isinstance(node[key], dict | list) and node[key]) or chance.random() < 0.2:
            return _changes(node, key, chance.randrange(4))
        node = node[key]


def _changes(holder: Any, key: Any, way: int) -> Callable[[Any], None]:
    def act(value: Any) -> None:
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, dict):
            holder[f"{key}x"] = value
        elif way == 1:
            holder.insert(key, value)
        else:
            holder[key] = value

    return act


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value
