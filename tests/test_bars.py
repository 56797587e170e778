"""The bars of the benchmark: what is missed is named with its number and its bar."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from benchmarks import accuracy, augmentation, crowd, large, million, models, price, steps
from benchmarks.bars import Summary, judge, summarise
from benchmarks.contest import Round, Visit

GOOD = {
    "plain": (10.0, 20.0, 500),
    "isfl-2": (3.0, 7.0, 504),
    "flower": (8.0, 16.0, 1200),
    "pfl": (9.0, 17.0, 900),
}
"""Seconds, CPU seconds and peak bytes; all bars are met, that of memory exactly."""


def visits_of(numbers: Mapping[str, tuple[float, float, int]], repetition: int = 0) -> list[Visit]:
    return [
        Visit(name, repetition, [Round(seconds, cpu, images=100, loss=1.0)], peak)
        for name, (seconds, cpu, peak) in numbers.items()
    ]


def test_no_bar_is_missed_when_all_are_met() -> None:
    assert judge(summarise(visits_of(GOOD))) == ([], [])


@pytest.mark.parametrize(
    ("ours", "named"),
    [
        ((4.0, 7.0, 504), "2.50 times as fast as the plain loop; 2.6 is due"),
        ((6.3, 7.0, 504), "2.6 is due, and 1.6 was reached before"),
        ((3.0, 7.7, 504), "0.39 of the plain loop's CPU seconds; at most 0.38 is due"),
        ((3.0, 7.0, 520), "0.43 of flower's memory at its peak; at most 0.42 is due"),
        ((3.0, 7.0, 601), "at most 0.42 is due, and 0.5 was reached before"),
    ],
)
def test_a_missed_bar_is_named(ours: tuple[float, float, int], named: str) -> None:
    missed, unjudged = judge(summarise(visits_of({**GOOD, "isfl-2": ours})))
    assert len(missed) == 1 and named in missed[0] and not unjudged


def test_a_peer_that_takes_less_cpu_time_is_named() -> None:
    (line,) = judge(summarise(visits_of({**GOOD, "flower": (8.0, 6.9, 1200)})))[0]
    assert "flower 6.90; it must take less" in line


def test_no_other_network_may_be_slower_than_the_plain_loop() -> None:
    def speed(value: float) -> Summary:
        return Summary("isfl-2", 1.0, 1.0, 1.0, 1, value)

    assert models.judged("mlp", speed(1.0)) == []
    assert models.judged("mlp", speed(0.99)) == ["mlp is 0.99 times as fast as the plain loop; the minimum is 1.0"]


def test_the_price_of_isfl_is_judged_in_every_setting() -> None:
    assert price.judged("20 clients", {"FedAvg": 1.0, "ISFL, exact": 1.08, "ISFL, last-layer": 1.03}) == []
    (line,) = price.judged("20 clients", {"FedAvg": 1.0, "ISFL, exact": 1.081, "ISFL, last-layer": 1.0})
    assert line == "ISFL, exact costs 1.081 times a FedAvg round (20 clients); at most 1.08 is due"


def test_accuracy_with_compiled_layers_must_be_within_the_spread_over_seeds() -> None:
    torch_s = [50.0, 51.0, 52.0]
    assert accuracy.missed({"torch": torch_s, "fast": [51.0, 52.0, 53.0]}) == []
    (line,) = accuracy.missed({"torch": torch_s, "fast": [48.9, 49.9, 50.9]})
    assert "-1.10 points on average; the spread over seeds is 1.00" in line


def test_speed_is_the_median_over_repetitions_of_neighbours_in_time() -> None:
    """A machine that slows down during one repetition slows both contestants of it."""
    slow = {name: (3 * seconds, cpu, peak) for name, (seconds, cpu, peak) in GOOD.items()}
    odd = {**GOOD, "isfl-2": (20.0, 7.0, 504)}
    summaries = summarise(visits_of(GOOD) + visits_of(slow, 1) + visits_of(odd, 2))
    assert summaries["isfl-2"].speed == 10 / 3


def test_bars_against_a_missing_peer_are_not_judged_but_ours_must_be_there() -> None:
    missed, unjudged = judge(summarise(visits_of({k: v for k, v in GOOD.items() if k != "flower"})))
    assert not missed and len(unjudged) == 2 and all("flower" in line for line in unjudged)
    assert judge(summarise(visits_of({"plain": GOOD["plain"]})))[0] == ["isfl-2 was not measured"]


def test_augmentation_must_take_less_than_a_twentieth_of_a_step() -> None:
    assert augmentation.missed({1.0: 0.049, 0.5: 0.0}) == []
    (line,) = augmentation.missed({1.0: 0.01, 0.5: 0.05})
    assert "0.050 of a training step at width 0.5" in line


def test_compiled_layers_must_take_little_more_than_half_of_torchs_time() -> None:
    assert steps.missed({"training": 0.55, "evaluation": 0.1}) == []
    (line,) = steps.missed({"training": 0.56, "evaluation": 0.1})
    assert line == "training: 0.56 of torch's time; at most 0.55 is due"


def test_many_clients_must_take_no_more_time_and_memory_than_a_hundred() -> None:
    hundred = crowd.Cost(bytes=10**9, seconds=0.1)
    assert crowd.missed({10: crowd.Cost(10**9, 0.5), 100: hundred, 1000: crowd.Cost(11 * 10**8, 0.11)}) == []
    slow, large_one = crowd.missed({100: hundred, 1000: crowd.Cost(10**9, 0.12), 10_000: crowd.Cost(12 * 10**8, 0.1)})
    assert "1000 clients take 1.20 times the time of 100" in slow
    assert "10000 clients take 1.20 times the memory of 100" in large_one


def test_images_of_any_size_must_take_at_most_a_gigabyte() -> None:
    assert large.missed({1.0: 4e8, 4.0: 1e9}) == []
    (line,) = large.missed({1.0: 4e8, 4.0: 1.01e9})
    assert line == "4 GB of images take 1010 MB; at most 1000 are due"


def test_memory_that_grows_with_rounds_or_with_clients_misses_the_bar_of_a_million() -> None:
    def run(*megabytes: int) -> million.Run:
        return million.Run([1, 3], [1.0, 1.0], [10**6 * size for size in megabytes], [100, 500], [0.1, 0.2])

    few = run(150, 100, 40, 40, 40)  # samples that miss the peak of a round do not count, nor does the first round
    assert million.missed({10: few, 100: run(100, 105, 60, 60, 60, 110)}) == []
    (rounds,) = million.missed({10: few, 100: run(100, 100, 100, 100, 100, 60, 120, 60)})
    (clients,) = million.missed({10: few, 100: run(100, 120, 60, 60, 60, 120)})
    assert (
        "the end of a run of 100 clients takes 1.20" in rounds and "a federation of 100 clients takes 1.20" in clients
    )
    assert million.bytes_per_client(run(100, 100)) == 200
