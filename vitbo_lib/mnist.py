"""Real digits with a noisy border: the data of the paper's Figure 2.

The four original idx files lie in data/mnist. Each is compared with a checksum below before a byte of it is used, and
nothing is ever unpickled. Another folder is named by the environment variable VITBO_DATA; it may hold the same four
.gz files or the four originals uncompressed.

Everything that the paper leaves open about these images is a parameter here: see `add_border_noise`.
"""

import gzip
import hashlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitbo_lib.errors import UserError
from vitbo_lib.seeds import stream

SIDE = 28  # pixels
BORDER_WIDTH = 4  # the paper's; MNIST fits every digit into the 20 x 20 box inside, then centres it by mass
FOLDER = Path(__file__).resolve().parents[1] / "data" / "mnist"
READINGS = ("added", "replaced")

# The same as data/mnist/SHA256SUMS: of each compressed file and of its content. A test compares.
SHA256 = {
    "t10k-images-idx3-ubyte.gz": "1a1a05eab793c14bb050b398624a11b0ffd1a2953baed553b1b9bd079e2a20be",
    "t10k-labels-idx1-ubyte.gz": "b91679a0acfe4ba0e50a2437a903084cba1f5f92592b016a25a7dfd00455798b",
    "train-images-idx3-ubyte.gz": "0b367032e93c5d0cea0925647cfdb18614af8ee15f83e6f2fc2ad904a6835971",
    "train-labels-idx1-ubyte.gz": "1787548bbe0bff1ec2ecdc0ef292b02df999e2d1a6002d27500982c652b17203",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
}
REMEDY = "restore it from the repository, or set VITBO_DATA to a folder that has the four original MNIST files"
_MAGIC = {1: 0x0801, 3: 0x0803}  # idx: unsigned bytes, one axis or three
_SIZE_LIMIT = 64 * 2**20  # the largest original has 47 MB: whatever is larger is not read at all


@dataclass(frozen=True)
class Digits:
    """MNIST: images in [0, 1] of shape (60000, 28, 28) and (10000, 28, 28), labels 0 to 9; all read-only."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load(folder: str | os.PathLike | None = None, dtype=np.float32) -> Digits:
    """The 60,000 training and 10,000 test digits, pixel value / 255.

    From `folder`, else from the folder in VITBO_DATA, else from data/mnist. `UserError` when a file is missing, is not
    readable, or has another SHA-256 than the original.

    >>> digits = load()
    >>> digits.train_images.shape, digits.test_labels[:5].tolist()
    ((60000, 28, 28), [7, 2, 1, 0, 4])
    """
    folder = Path(folder or os.environ.get("VITBO_DATA") or FOLDER)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; it must hold the four MNIST files (or set VITBO_DATA)")
    arrays = []
    for part in ("train", "t10k"):
        images = read_idx(verified_content(folder, f"{part}-images-idx3-ubyte"), f"{part}-images-idx3-ubyte", axes=3)
        labels = read_idx(verified_content(folder, f"{part}-labels-idx1-ubyte"), f"{part}-labels-idx1-ubyte", axes=1)
        arrays += [images.astype(dtype) / dtype(255), labels.astype(np.int64)]
    for array in arrays:
        array.flags.writeable = False
    return Digits(*arrays)


def verified_content(folder: Path, name: str) -> bytes:
    """Content of the idx file `name` in `folder`, compressed or not; `UserError` for another SHA-256."""
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)
    if path is None:
        raise UserError(f"{folder / name}.gz is missing; {REMEDY}")
    try:
        size = path.stat().st_size
        raw = path.read_bytes() if size <= _SIZE_LIMIT else b""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {REMEDY}") from error
    found = hashlib.sha256(raw).hexdigest()
    if found != SHA256[path.name]:
        raise UserError(f"{path} is damaged or another file: {size} bytes with SHA-256 {found[:12]}..., expected "
                        f"{SHA256[path.name][:12]}...; {REMEDY}")
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def read_idx(content: bytes, name: str, axes: int) -> np.ndarray:
    """The uint8 array in an idx file: a magic number, the length of each of the `axes` axes, then the bytes.

    The numbers of the head are big-endian and four bytes long. `UserError` for another magic number or another length.

    >>> read_idx(bytes.fromhex("00000801 00000003 070002"), "labels", axes=1)
    array([7, 0, 2], dtype=uint8)
    """
    head = np.frombuffer(content[:4 * (axes + 1)], dtype=">u4") if len(content) >= 4 * (axes + 1) else [-1]
    if head[0] != _MAGIC[axes]:
        raise UserError(f"{name} is no idx file of {axes} {'axis' if axes == 1 else 'axes'} of bytes; {REMEDY}")
    shape = tuple(int(length) for length in head[1:])
    if len(content) != 4 * (axes + 1) + math.prod(shape):
        raise UserError(f"{name} is truncated or too long for its shape {shape}; {REMEDY}")
    return np.frombuffer(content, dtype=np.uint8, offset=4 * (axes + 1)).reshape(shape)


def factors(snr: float) -> tuple[float, float]:
    """What the image and what the noise are multiplied by: s / (1 + s) and 1 / (1 + s), their ratio being s = `snr`.

    The paper prints the factors for 0.2 and 2.0 (section 6); the rule is the one that gives both. `UserError` unless
    `snr` is a finite number above 0.

    >>> [round(6 * factor, 12) for s in (0.2, 2.0) for factor in factors(s)]
    [1.0, 5.0, 4.0, 2.0]
    """
    if isinstance(snr, bool) or not isinstance(snr, int | float | np.number) or not (0 < snr < math.inf):
        raise UserError(f"snr = {snr!r} is not possible; give a finite number above 0, like 0.2")
    return float(snr / (1 + snr)), float(1 / (1 + snr))


def border_mask(width: int = BORDER_WIDTH, side: int = SIDE) -> np.ndarray:
    """True on the outer region of a (side, side) image, `width` pixels wide; `UserError` if nothing would be inside.

    >>> int(border_mask().sum()), bool(border_mask()[4:24, 4:24].any())
    (384, False)
    """
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or not 1 <= width < side / 2:
        raise UserError(f"border width = {width!r} is not possible; give a whole number from 1 to {(side - 1) // 2}")
    mask = np.ones((side, side), dtype=bool)
    mask[width:-width, width:-width] = False
    return mask


def add_border_noise(images: np.ndarray, snr: float, generator: np.random.Generator, *, width: int = BORDER_WIDTH,
                     reading: str = "added") -> np.ndarray:
    """Digits with Gaussian noise on their outer region: a * image + b * z on the border, a * image inside.

    `images` (N, 28, 28) in [0, 1]; (a, b) = `factors(snr)`; z is standard normal, one number a border pixel, drawn from
    `generator` sample by sample. With `reading="replaced"` the border is b * z alone. Nothing is clipped. Shape and
    dtype stay. The paper's section 6 gives the factors and the width; the law of the noise, its standard deviation of 1
    and the reading are choices.

    >>> noisy = add_border_noise(np.ones((1, 28, 28)), 2.0, stream(0, "doctest"))
    >>> float(noisy[0, 4:24, 4:24].max().round(4)), bool(noisy[0, 0].std() > 0.2)
    (0.6667, True)
    """
    images = np.asarray(images)
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise UserError(f"images of shape {images.shape} are no digits; give an array of shape (N, {SIDE}, {SIDE})")
    if not np.issubdtype(images.dtype, np.floating):
        raise UserError(f"images of type {images.dtype} are no values in [0, 1]; divide the bytes by 255 first")
    if reading not in READINGS:
        raise UserError(f"reading = {reading!r} is unknown; choose one of {', '.join(READINGS)}")
    image_factor, noise_factor = factors(snr)
    border = border_mask(width)
    noise = generator.standard_normal((len(images), int(border.sum())))
    noisy = images * images.dtype.type(image_factor)
    kept = noisy[:, border] if reading == "added" else 0
    noisy[:, border] = kept + noise_factor * noise
    return noisy


def training_set(digits: Digits, N: int, snr: float, seed: int, **border) -> tuple[np.ndarray, np.ndarray]:
    """`N` training digits with their noise, drawn once, and their labels.

    Which of the 60,000 digits (without replacement) and which noise depend on `seed` alone: the digits and the noise of
    a smaller `N` are the first of a larger one, and two values of `snr` share them. Returns images (N, 28, 28) and
    labels (N,). `UserError` for an impossible `N`; further keywords go to `add_border_noise`.

    >>> few, _ = training_set(load(), 3, 0.2, seed=0)
    >>> more, labels = training_set(load(), 5, 0.2, seed=0)
    >>> bool((more[:3] == few).all()), labels.shape
    (True, (5,))
    """
    chosen = stream(seed, "mnist", "train", "images").permutation(len(digits.train_images))
    chosen = chosen[:_count(N, "N", len(chosen))]
    noise = stream(seed, "mnist", "train", "noise")
    return add_border_noise(digits.train_images[chosen], snr, noise, **border), digits.train_labels[chosen]


def fresh_set(digits: Digits, snr: float, seed: int, n_test: int = 10_000, **border) -> tuple[np.ndarray, np.ndarray]:
    """The first `n_test` test digits, with noise from a stream of its own, and their labels.

    Returns images (T, 28, 28) and labels (T,). `UserError` for an impossible `n_test`.

    >>> images, labels = fresh_set(load(), 0.2, seed=0, n_test=7)
    >>> images.shape, labels.tolist()
    ((7, 28, 28), [7, 2, 1, 0, 4, 1, 4])
    """
    count = _count(n_test, "n_test", len(digits.test_images))
    noise = stream(seed, "mnist", "test", "noise")
    return add_border_noise(digits.test_images[:count], snr, noise, **border), digits.test_labels[:count]


def _count(value: int, name: str, largest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= largest:
        raise UserError(f"{name} = {value!r} is not possible; give a whole number from 1 to {largest:,}")
    return int(value)


def border_ink(images: np.ndarray, width: int = BORDER_WIDTH) -> tuple[float, float]:
    """How far the two readings of the border can differ: share of all ink that is there, share of images with any.

    `images` (N, 28, 28); both numbers are between 0 and 1.

    >>> border_ink(np.ones((2, 28, 28)))[1]
    1.0
    """
    border = border_mask(width)
    ink = images[:, border].sum(axis=1, dtype=float)
    return float(ink.sum() / images.sum(dtype=float)), float((ink > 0).mean())


def norm_ratio(images: np.ndarray, snr: float, width: int = BORDER_WIDTH) -> float:
    """Norm of the whole digit over norm of the whole noise: s r / sqrt(m), as vectors of pixels, no unit.

    r is the root mean square norm of `images` (N, 28, 28), m the number of border pixels, s = `snr`. It is as near as
    these images come to SNR = ||mu|| / (sigma_p sqrt(d)) of Definition 3.1: there mu is one vector, here a digit.

    >>> round(norm_ratio(np.ones((1, 28, 28)), 0.5), 3)  # 28 / sqrt(384), halved
    0.714
    """
    mean_square = float((images.astype(float) ** 2).sum(axis=(1, 2)).mean())
    image_factor, noise_factor = factors(snr)
    return image_factor * math.sqrt(mean_square) / (noise_factor * math.sqrt(border_mask(width).sum()))
