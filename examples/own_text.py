"""Sentences of different lengths: isfl on sequences of tokens, with a model that ignores the padding.

python examples/own_text.py
"""

from __future__ import annotations

import random

from torch import Tensor, nn

import isfl

TOPICS = {
    "weather": ["rain", "wind", "cloud", "storm", "sun", "snow", "fog", "cold", "warm", "sky"],
    "kitchen": ["bread", "salt", "oven", "soup", "knife", "apple", "sugar", "plate", "butter", "onion"],
    "railway": ["train", "track", "station", "ticket", "signal", "bridge", "tunnel", "engine", "platform", "delay"],
}
FILLERS = ["the", "a", "of", "and", "near", "with", "was", "is", "very", "old", "new"]
WORDS = [*FILLERS, *(word for words in TOPICS.values() for word in words)]
VOCABULARY = {word: number for number, word in enumerate(WORDS, start=1)}  # 0 is padding


def sentences(count: int, seed: int) -> tuple[list[list[int]], list[str]]:
    """Tokens (one list per sentence, of any length) and topics."""
    rng = random.Random(seed)
    topics = [rng.choice(list(TOPICS)) for _ in range(count)]
    words = [rng.choices(FILLERS, k=rng.randint(2, 12)) + rng.choices(TOPICS[topic], k=3) for topic in topics]
    return [[VOCABULARY[word] for word in sentence] for sentence in words], topics


class MeanOfWords(nn.Module):
    """The mean of the words' vectors, without padding, and a linear layer."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(VOCABULARY) + 1, 16, padding_idx=0)
        self.head = nn.Linear(16, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        lengths = (tokens != 0).sum(1, keepdim=True)
        return self.head(self.words(tokens).sum(1) / lengths)


CONFIG = {
    "scheme": "isfl",
    "data": {"public": 60},
    "split": {"kind": "dirichlet", "clients": 4, "samples_per_client": 120, "alpha": 0.5},
    "training": {"rounds": 6, "local_epochs": 2, "batch_size": 16, "optimizer": {"kind": "adam", "lr": 0.05}},
}


def main(out: str | None = None) -> float:
    data = {"train": sentences(600, seed=1), "test": sentences(300, seed=2), "classes": list(TOPICS)}
    run = isfl.run(CONFIG, data=data, model=MeanOfWords, out=out)
    accuracy: float = run.records[-1]["accuracy_standard"]
    print(f"{len(TOPICS)} topics: accuracy {accuracy:.2f} after {len(run.records)} rounds; see {run.path}")
    return accuracy


if __name__ == "__main__":
    main()
