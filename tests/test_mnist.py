"""The digits are the originals or nothing, and their noisy border is what it is said to be."""

import gzip
import shutil

import numpy as np
import pandas as pd
import pytest

from vitbo_lib import mnist
from vitbo_lib.errors import UserError
from vitbo_lib.figures import mnist as figures
from vitbo_lib.figures import style
from vitbo_lib.seeds import stream

GZ = [name for name in mnist.SHA256 if name.endswith(".gz")]


@pytest.fixture(scope="module")
def digits():
    return mnist.load()


@pytest.fixture
def copy(tmp_path):
    """A folder with the four files, to be damaged."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    for name in GZ:
        shutil.copy(mnist.FOLDER / name, folder / name)
    return folder


# ------------------------------------------------------------------------------------------------------------ the files

def test_checksums_in_the_code_are_those_beside_the_files():
    lines = (mnist.FOLDER / "SHA256SUMS").read_text().splitlines()
    assert {name: digest for digest, name in (line.split() for line in lines)} == mnist.SHA256


def test_what_is_loaded_is_mnist(digits):
    """Known facts of the data set: sizes, the count of each label, the mean and deviation of the training pixels."""
    assert digits.train_images.shape == (60_000, 28, 28)
    assert digits.test_images.shape == (10_000, 28, 28)
    assert np.bincount(digits.train_labels).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(digits.test_labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert digits.train_images.mean(dtype=float) == pytest.approx(0.1307, abs=5e-5)
    assert digits.train_images.std(dtype=float) == pytest.approx(0.3081, abs=5e-5)
    assert digits.train_images.max() == 1
    assert digits.train_labels[:5].tolist() == [5, 0, 4, 1, 9]
    with pytest.raises(ValueError, match="read-only"):
        digits.train_images[0, 0, 0] = 1


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flipped_in_the_head(path):
    """The time stamp of gzip: the content stays right, the file is no longer the one that was checked."""
    content = bytearray(path.read_bytes())
    content[4] ^= 1
    path.write_bytes(content)


def emptied(path):
    path.write_bytes(b"")


def replaced_by_other_gzip(path):
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x03" + bytes(12)))


def removed(path):
    path.unlink()


def made_a_folder(path):
    path.unlink()
    path.mkdir()


FAULTS = [truncated, flipped, flipped_in_the_head, emptied, replaced_by_other_gzip, removed, made_a_folder]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_anything_else_is_refused_in_one_line(copy, monkeypatch, name, fault):
    fault(copy / name)
    monkeypatch.setenv("VITBO_DATA", str(copy))
    with pytest.raises(UserError, match=name) as refusal:
        mnist.load()
    assert "\n" not in str(refusal.value)
    assert "VITBO_DATA" in str(refusal.value)


def test_swapped_files_are_refused(copy):
    first, second = copy / "train-labels-idx1-ubyte.gz", copy / "t10k-labels-idx1-ubyte.gz"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(UserError, match="damaged or another file"):
        mnist.load(copy)


def test_a_huge_file_is_not_read(copy):
    with (copy / "t10k-images-idx3-ubyte.gz").open("wb") as file:
        file.truncate(mnist._SIZE_LIMIT + 1)
    with pytest.raises(UserError, match=str(mnist._SIZE_LIMIT + 1)):
        mnist.load(copy)


def test_the_originals_may_be_uncompressed(copy, digits, monkeypatch):
    for path in list(copy.iterdir()):
        (copy / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    monkeypatch.setenv("VITBO_DATA", str(copy))
    np.testing.assert_array_equal(mnist.load().test_images, digits.test_images)
    flipped(copy / "t10k-images-idx3-ubyte")
    with pytest.raises(UserError, match="damaged or another file"):
        mnist.load()


@pytest.mark.parametrize("named", ["missing", "file"])
def test_a_folder_that_is_none_is_refused(tmp_path, monkeypatch, named):
    (tmp_path / "file").touch()
    monkeypatch.setenv("VITBO_DATA", str(tmp_path / named))
    with pytest.raises(UserError, match="there is no folder"):
        mnist.load()


@pytest.mark.parametrize(("content", "axes"), [
    ("00000803 00000001 00000001 00000001 07", 1),  # the magic number of images
    ("00000801 00000003 070002", 3),
    ("00000d01 00000003 070002", 1),                # floating point numbers
    ("00000801 00000004 070002", 1),
    ("00000801 00000002 070002", 1),
    ("01080000 03000000 070002", 1),                # the other byte order
    ("000008", 1),
    ("", 3),
])
def test_a_head_that_does_not_fit_is_refused(content, axes):
    with pytest.raises(UserError, match="labels"):
        mnist.read_idx(bytes.fromhex(content), "labels", axes)


# ----------------------------------------------------------------------------------------------------- the noisy border

def check_factors(factors):
    """The paper's two pairs, and a ratio that is the SNR everywhere."""
    assert factors(0.2) == pytest.approx((1 / 6, 5 / 6))
    assert factors(2.0) == pytest.approx((2 / 3, 1 / 3))
    for snr in (0.01, 0.7, 1.0, 40.0):
        image, noise = factors(snr)
        assert image / noise == pytest.approx(snr)
        assert image + noise == pytest.approx(1)


def test_factors():
    check_factors(mnist.factors)


@pytest.mark.parametrize("wrong", [lambda s: mnist.factors(s)[::-1], lambda s: (s, 1.0), lambda s: (s / (1 + s), 1.0)],
                         ids=["swapped", "not normalised", "noise untouched"])
def test_planted_factors_are_seen(wrong):
    with pytest.raises(AssertionError):
        check_factors(wrong)


@pytest.mark.parametrize("snr", [0, -1.0, float("nan"), float("inf"), "2", True, None])
def test_impossible_snr(snr):
    with pytest.raises(UserError, match="snr"):
        mnist.factors(snr)


def check_noise(images, noisy, snr, *, width=4, a=None, b=None):
    """Inside: the image times a. On a border of four pixels: what is left after a * image is normal, deviation b."""
    a, b = snr / (1 + snr) if a is None else a, 1 / (1 + snr) if b is None else b
    inner = slice(width, 28 - width)
    np.testing.assert_allclose(noisy[:, inner, inner], a * images[:, inner, inner], atol=1e-6)
    rest = noisy - a * images
    outer = np.concatenate([rest[:, :width].ravel(), rest[:, -width:].ravel(), rest[:, inner, :width].ravel(),
                            rest[:, inner, -width:].ravel()])
    assert outer.size == len(images) * (28**2 - (28 - 2 * width) ** 2)
    assert outer.std() == pytest.approx(b, rel=0.02)
    assert outer.mean() == pytest.approx(0, abs=0.02 * b)
    assert (np.abs(outer) < 1e-9).mean() < 1e-3  # noise everywhere


@pytest.mark.parametrize("snr", [0.2, 2.0])
def test_noise_is_on_the_border_only(digits, snr):
    images = digits.train_images[:100]
    before = images.copy()
    noisy = mnist.add_border_noise(images, snr, stream(0, "test"))
    check_noise(images, noisy, snr)
    assert noisy.dtype == images.dtype
    np.testing.assert_array_equal(images, before)


@pytest.mark.parametrize("fault", ["wider", "narrower", "swapped", "replaced", "everywhere", "uniform noise width"])
def test_planted_noise_is_seen(digits, fault, monkeypatch):
    images, generator = digits.train_images[:100], stream(0, "test")
    if fault == "swapped":
        noisy = mnist.add_border_noise(images, 1 / 2.0, generator)
    elif fault == "replaced":
        images = np.full_like(images, 0.5)
        noisy = mnist.add_border_noise(images, 2.0, generator, reading="replaced")
    elif fault == "everywhere":
        noisy = images * 2 / 3 + generator.standard_normal(images.shape) / 3
    elif fault == "uniform noise width":
        noisy = mnist.add_border_noise(images, 2.0, generator)
        noisy += generator.uniform(-1, 1, noisy.shape) * mnist.border_mask()
    else:
        noisy = mnist.add_border_noise(images, 2.0, generator, width={"wider": 5, "narrower": 3}[fault])
    with pytest.raises(AssertionError):
        check_noise(images, noisy, 2.0)


def test_replaced_border_hides_the_image():
    noisy = [mnist.add_border_noise(np.full((3, 28, 28), ink), 2.0, stream(0, "test"), reading="replaced")
             for ink in (0.0, 1.0)]
    border = mnist.border_mask()
    np.testing.assert_array_equal(noisy[0][:, border], noisy[1][:, border])
    np.testing.assert_allclose(noisy[1][:, ~border], 2 / 3)


@pytest.mark.parametrize("width", [0, 14, -1, 4.0, True, "4"])
def test_impossible_width(width):
    with pytest.raises(UserError, match="border width"):
        mnist.border_mask(width)


def test_other_impossible_requests(digits):
    with pytest.raises(UserError, match="choose one of added, replaced"):
        mnist.add_border_noise(digits.test_images[:2], 1.0, stream(0, "test"), reading="both")
    with pytest.raises(UserError, match="no digits"):
        mnist.add_border_noise(np.zeros((2, 784)), 1.0, stream(0, "test"))
    with pytest.raises(UserError, match="divide the bytes by 255"):
        mnist.add_border_noise(np.zeros((2, 28, 28), dtype=np.uint8), 1.0, stream(0, "test"))
    for count in (0, -3, 60_001, 2.5, True):
        with pytest.raises(UserError, match="N ="):
            mnist.training_set(digits, count, 1.0, seed=0)
    with pytest.raises(UserError, match="n_test"):
        mnist.fresh_set(digits, 1.0, seed=0, n_test=10_001)


# ------------------------------------------------------------------------------------------------------------- the sets

def border_noise(images, digits_of_them, snr):
    """The noise vectors (n, 384), in units of its deviation."""
    a, b = mnist.factors(snr)
    return ((images - a * digits_of_them) / b)[:, mnist.border_mask()].astype(float)


def check_independent(one, other):
    """No noise vector of one set is in the other, in any order, and none is nearly so."""
    unit = [noise / np.linalg.norm(noise, axis=1, keepdims=True) for noise in (one, other)]
    assert np.abs(unit[0] @ unit[1].T).max() < 0.4  # 384 coordinates: a chance of 1e-11 or so for 250 000 pairs


def sets(digits, seed=0, n=500):
    """Noise of a training and of a test set; the digits are recovered from a noise-free call."""
    chosen = stream(seed, "mnist", "train", "images").permutation(60_000)[:n]
    train, _ = mnist.training_set(digits, n, 0.5, seed)
    test, _ = mnist.fresh_set(digits, 0.5, seed, n_test=n)
    return border_noise(train, digits.train_images[chosen], 0.5), border_noise(test, digits.test_images[:n], 0.5)


def test_training_and_test_noise_are_independent(digits):
    check_independent(*sets(digits))
    check_independent(sets(digits, 0)[0], sets(digits, 1)[0])
    check_independent(sets(digits, 0)[1], sets(digits, 1)[1])


def test_reused_training_noise_is_seen(digits, monkeypatch):
    """The fault of two public codes: the test set draws from the stream of the training set."""
    monkeypatch.setattr(mnist, "stream", lambda seed, *w: stream(seed, *(word.replace("test", "train") for word in w)))
    with pytest.raises(AssertionError):
        check_independent(*sets(digits))


def test_training_set_is_fixed_nested_and_shared_between_snrs(digits):
    few, labels = mnist.training_set(digits, 40, 0.2, seed=3)
    again, _ = mnist.training_set(digits, 40, 0.2, seed=3)
    more, more_labels = mnist.training_set(digits, 90, 0.2, seed=3)
    np.testing.assert_array_equal(few, again)
    np.testing.assert_array_equal(few, more[:40])
    np.testing.assert_array_equal(labels, more_labels[:40])
    clear, clear_labels = mnist.training_set(digits, 40, 2.0, seed=3)
    np.testing.assert_array_equal(labels, clear_labels)
    np.testing.assert_allclose(few[:, 4:-4, 4:-4] / (1 / 6), clear[:, 4:-4, 4:-4] / (2 / 3), rtol=1e-4, atol=1e-6)
    other, _ = mnist.training_set(digits, 40, 0.2, seed=4)
    assert not np.allclose(other, few)


def test_no_digit_twice_and_none_from_the_test_images(digits):
    train, labels = mnist.training_set(digits, 3000, 2.0, seed=0)
    inner = {image[4:-4, 4:-4].tobytes() for image in train}
    assert len(inner) == 3000
    chosen = stream(0, "mnist", "train", "images").permutation(60_000)[:3000]
    np.testing.assert_array_equal(labels, digits.train_labels[chosen])
    test, _ = mnist.fresh_set(digits, 2.0, seed=0, n_test=3000)
    assert not inner & {image[4:-4, 4:-4].tobytes() for image in test}


def test_sizes_of_digit_and_noise_by_hand():
    one = np.zeros((1, 28, 28))
    one[0, 0, :3] = 1    # on the border
    one[0, 10, :6] = 1   # four on it, two inside
    assert mnist.border_ink(one) == (7 / 9, 1.0)
    assert mnist.norm_ratio(one, 2.0) == pytest.approx(2 * 3 / np.sqrt(384))


# ---------------------------------------------------------------------------------------------------------- the figures

def test_the_sheet_shows_every_digit_in_its_place(digits):
    images = digits.test_images[:10]
    fig = figures.digit_rows({0.2: images, 2.0: images * 2})
    axes = [ax for ax in fig.axes if ax.images]
    assert [ax.get_ylabel() for ax in axes] == ["SNR 0.2", "SNR 2"]
    assert len({ax.images[0].get_clim() for ax in axes}) == 1
    sheet = axes[0].images[0].get_array()
    np.testing.assert_array_equal(sheet[:28, :28], images[0])
    np.testing.assert_array_equal(sheet[31:59, -28:], images[9])
    assert sheet.mask[28:31].all()
    low, high = axes[0].images[0].get_clim()
    assert low == -high  # an empty pixel has the colour in the middle


def runs():
    rows = [(setting, snr, seed, 0.001 * seed, 1 / snr + 0.1 * seed, 0.1 / snr + 0.01 * seed)
            for setting in ("usual", "bare") for snr in (2.0, 0.2) for seed in range(3)]
    return pd.DataFrame(rows, columns=["setting", "snr", "seed", "train_loss", "test_loss", "test_error"])


def test_every_run_is_a_dot_and_the_interval_is_by_students_t():
    fig = figures.two_cells(runs())
    assert len(fig.axes) == 6
    for ax in fig.axes:
        joined = [line for line in ax.lines if line.get_color() in (style.TEST, style.TRAIN)]
        assert len(joined) == 3
    loss = fig.axes[0]
    drawn = np.array([line.get_ydata() for line in loss.lines if line.get_color() == style.TEST])
    np.testing.assert_allclose(np.sort(drawn[:, 0]), [5.0, 5.1, 5.2])  # SNR 0.2 stands at the left
    np.testing.assert_allclose(np.sort(drawn[:, 1]), [0.5, 0.6, 0.7])
    mean, half = 5.1, 4.303 * 0.1 / np.sqrt(3)
    (low, high), = [segment[:, 1] for bars in loss.containers for c in bars[2] for segment in c.get_segments()
                    if segment[0, 1] > 3]
    assert (low, high) == pytest.approx((mean - half, mean + half), abs=1e-3)
