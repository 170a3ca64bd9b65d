"""Named streams of random numbers: each use of chance has words of its own, and no global seed exists."""

import zlib

import numpy as np

from vitbo_lib.errors import UserError

LARGEST_SEED = 2**63 - 1


def stream(seed: int, *words: str | int) -> np.random.Generator:
    """The generator of the stream that `words` name under `seed`.

    Streams of different words, or of different seeds, are independent (`numpy.random.SeedSequence` with the words'
    checksums as entropy); the same words always give the same numbers. A number among the words is a counter, say of
    a sample. `UserError` for a seed that is no whole number from 0 to 2^63 - 1.

    >>> stream(0, "train", "noise").integers(100, size=3)
    array([46, 42,  9])
    >>> stream(0, "test", "noise").integers(100, size=3)
    array([38, 57, 99])
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"seed = {seed!r} is not possible; give a whole number from 0 to 2^63 - 1")
    if not words:
        raise UserError("a stream without a name would be shared; name its use, like stream(seed, 'train', 'noise')")
    return np.random.default_rng(np.random.SeedSequence([int(seed), *map(_entropy, words)]))


def _entropy(word: str | int) -> int:
    """A word as a number of two 32-bit digits, a counter as one of three: the highest digit, a 1, tells them apart.

    Left as it is, a counter 0 would be lost (SeedSequence pads with zeros), and a first counter would read as the upper
    half of a large seed.
    """
    return 2**32 + zlib.crc32(word.encode()) if isinstance(word, str) else 2**64 + int(word)
