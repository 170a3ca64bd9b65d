"""Streams of random numbers: named, reproducible, and never shared by accident."""

import itertools

import numpy as np
import pytest

from vitbo_lib import seeds
from vitbo_lib.errors import UserError
from vitbo_lib.seeds import stream

# Every way of naming that must lead to numbers of its own; the later ones differ by a counter or by 2^32 only.
NAMES = [(0, "train", "noise"), (0, "train", "labels"), (0, "test", "noise"), (0, "test", "labels"), (0, "weights"),
         (0, "weights", "training axes"), (0, "weights", "fresh axes"), (1, "train", "noise"), (0, "noise", "train"),
         (2**32, "train", "noise"), (2**63 - 1, "train", "noise"), (0, "weights", 0), (0, "weights", 1),
         (0, 0, "weights"), (0, "weights", 0, 0), (5 + 7 * 2**32, "weights"), (5, 7, "weights"), (0, "1"), (0, 1),
         (0, "mnist", "weights")]


def shared(names) -> list[tuple]:
    """Pairs of names that give the same numbers."""
    first = {name: tuple(stream(*name).integers(2**62, size=2)) for name in names}
    return [(a, b) for a, b in itertools.combinations(names, 2) if first[a] == first[b]]


def test_each_name_has_numbers_of_its_own():
    assert shared(NAMES) == []


def test_a_counter_that_stands_for_itself_is_caught(monkeypatch):
    """SeedSequence pads with zeros and splits large seeds: a bare 0 is no counter, a first one part of the seed."""
    right = seeds._entropy
    monkeypatch.setattr(seeds, "_entropy", lambda word: word if isinstance(word, int) else right(word))
    assert ((0, "weights"), (0, "weights", 0)) in shared(NAMES)
    assert ((5 + 7 * 2**32, "weights"), (5, 7, "weights")) in shared(NAMES)


def test_the_same_name_gives_the_same_numbers_here_and_everywhere():
    assert (stream(3, "a", 2).random(5) == stream(np.int64(3), "a", np.int64(2)).random(5)).all()
    assert stream(0, "train", "noise").integers(100, size=3).tolist() == [46, 42, 9]  # any platform, any version


def test_streams_are_uncorrelated():
    """200 streams of consecutive seeds, 1000 numbers each: the largest correlation is below 5.5 / sqrt(1000)."""
    numbers = np.array([stream(seed, "correlation").standard_normal(1000) for seed in range(200)])
    correlations = np.corrcoef(numbers)[np.triu_indices(200, 1)]
    assert abs(correlations).max() < 5.5 / 1000**0.5
    assert 0.95 < correlations.std() * 1000**0.5 < 1.05


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "0", True, None, float("nan")])
def test_impossible_seeds(seed):
    with pytest.raises(UserError, match=r"seed = .* is not possible"):
        stream(seed, "train")


def test_a_stream_needs_a_name():
    with pytest.raises(UserError, match="without a name"):
        stream(0)
