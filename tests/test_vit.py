"""The vision transformer is the one that is described, trains the same way twice, and stops where it says."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from vitbo_lib import mnist, mnist_experiment, vit
from vitbo_lib.errors import UserError
from vitbo_lib.vit import BARE, USUAL, Attention, Training, ViTConfig

SMALL = ViTConfig(patch=14, width=8, mlp_width=8)
QUICK = Training(epsilon=0.2, learning_rate=0.01, batch=10, epochs=300)


# -------------------------------------------------------------------------------------------------------- the attention

def rounding(values):
    """Of sums whose largest is the largest of `values`: another processor adds in another order."""
    return 1e-12 * float(values.detach().abs().max())


def check_against_torch(attention, heads=4, width=16):
    """The same function as torch.nn.MultiheadAttention with the same weights: output, maps, gradient."""
    theirs = nn.MultiheadAttention(width, heads, batch_first=True, dtype=torch.float64)
    theirs.in_proj_weight.data.copy_(attention.qkv.weight)
    theirs.in_proj_bias.data.copy_(attention.qkv.bias)
    theirs.out_proj.weight.data.copy_(attention.out.weight)
    theirs.out_proj.bias.data.copy_(attention.out.bias)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 5, width))).requires_grad_()
    want, maps = theirs(x, x, x, average_attn_weights=False)
    got = attention(x)
    torch.testing.assert_close(got, want, rtol=0, atol=rounding(want))
    torch.testing.assert_close(attention.maps(x)[0], maps, rtol=0, atol=1e-12)
    want_slope, = torch.autograd.grad(want.square().sum(), x)
    got_slope, = torch.autograd.grad(got.square().sum(), x)
    torch.testing.assert_close(got_slope, want_slope, rtol=0, atol=rounding(want_slope))


def attention(kind=Attention, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = kind(16, 4, **kwargs).double()
        for parameter in made.parameters():  # larger than usual, so that attention is far from even
            nn.init.normal_(parameter)
        return made


def test_attention_is_multihead_attention():
    check_against_torch(attention())


class NoSoftmax(Attention):
    def maps(self, x):
        values = super().maps(x)[1]
        n, m, width = x.shape
        q, k, _ = self.qkv(x).reshape(n, m, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return q @ k.transpose(-1, -2) * self.scale, values


class SoftmaxOverQueries(Attention):
    def maps(self, x):
        n, m, width = x.shape
        q, k, v = self.qkv(x).reshape(n, m, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return torch.softmax(q @ k.transpose(-1, -2) * self.scale, dim=-2), v


class HeadsMixed(Attention):
    def forward(self, x):
        weights, values = self.maps(x)
        return self.out((weights @ values).reshape(x.shape))


class OneHead(Attention):
    def __init__(self, width, heads):
        super().__init__(width, heads // 4)


@pytest.mark.parametrize("fault", [NoSoftmax, SoftmaxOverQueries, HeadsMixed, OneHead])
def test_planted_attention_is_seen(fault):
    with pytest.raises(AssertionError):
        check_against_torch(attention(fault))


def test_missing_scale_is_seen():
    with pytest.raises(AssertionError):
        check_against_torch(attention(scaled=False))


# ---------------------------------------------------------------------------------------------------------- the network

def test_patches_cut_the_image_into_squares():
    images = torch.arange(2 * 28 * 28.0).reshape(2, 28, 28)
    tokens = vit.patches(images, 7)
    assert tokens.shape == (2, 16, 49)
    for token, (top, left) in {0: (0, 0), 1: (0, 7), 4: (7, 0), 15: (21, 21)}.items():
        torch.testing.assert_close(tokens[1, token].reshape(7, 7), images[1, top:top + 7, left:left + 7])


def test_with_patches_of_four_a_token_is_border_or_inside():
    border = torch.from_numpy(mnist.border_mask()).float()[None]
    assert vit.patches(border, 4)[0].mean(dim=1).unique().tolist() == [0, 1]


def shuffled_logits(config):
    """Logits of images and of the same images with their patches in another order."""
    model = vit.vit(config, seed=0, dtype=torch.float64)
    images = torch.from_numpy(np.random.default_rng(1).standard_normal((4, 28, 28)))
    order = torch.from_numpy(np.random.default_rng(2).permutation(config.tokens))
    tokens = vit.patches(images, config.patch)[:, order]
    side = 28 // config.patch
    moved = tokens.reshape(4, side, side, config.patch, config.patch).transpose(2, 3).reshape(4, 28, 28)
    with torch.no_grad():
        return model(images), model(moved)


def test_only_the_positional_code_knows_where_a_patch_is():
    torch.testing.assert_close(*shuffled_logits(BARE), rtol=0, atol=1e-12)
    torch.testing.assert_close(*shuffled_logits(dataclasses.replace(USUAL, positional=False)), rtol=0, atol=1e-12)
    ordered, moved = shuffled_logits(USUAL)
    assert (ordered - moved).abs().max() > 1e-5


def test_the_bare_network_by_hand():
    """The whole network as one formula in NumPy: no norm, no residual, mean of the tokens, then the MLP."""
    model = vit.vit(SMALL_BARE, seed=5, dtype=torch.float64)
    image = np.random.default_rng(3).standard_normal((1, 28, 28))
    w = {name: value.detach().numpy() for name, value in model.named_parameters()}
    x = np.stack([image[0, i:i + 14, j:j + 14].ravel() for i in (0, 14) for j in (0, 14)])
    x = x @ w["embed.weight"].T + w["embed.bias"]
    for layer in range(2):
        q, k, v = np.split(x @ w[f"attention.{layer}.qkv.weight"].T + w[f"attention.{layer}.qkv.bias"], 3, axis=1)
        heads = []
        for h in range(4):
            s = slice(2 * h, 2 * h + 2)
            e = np.exp(q[:, s] @ k[:, s].T / math.sqrt(2))
            heads.append(e / e.sum(axis=1, keepdims=True) @ v[:, s])
        x = np.hstack(heads) @ w[f"attention.{layer}.out.weight"].T + w[f"attention.{layer}.out.bias"]
    hidden = np.maximum(x.mean(axis=0) @ w["mlp.0.weight"].T + w["mlp.0.bias"], 0)
    want = hidden @ w["mlp.2.weight"].T + w["mlp.2.bias"]
    got = model(torch.from_numpy(image))[0].detach().numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    residual = vit.vit(dataclasses.replace(SMALL_BARE, residual=True), seed=5, dtype=torch.float64)
    assert np.abs(residual(torch.from_numpy(image))[0].detach().numpy() - want).max() > 1e-3


SMALL_BARE = dataclasses.replace(BARE, patch=14, width=8, mlp_width=8)


def test_the_papers_words_are_in_both_presets():
    for config in vit.PRESETS.values():
        model = vit.vit(config, seed=0)
        assert len(model.attention) == 2
        assert {layer.heads for layer in model.attention} == {4}
        assert [type(part) for part in model.mlp] == [nn.Linear, nn.ReLU, nn.Linear]
        assert model(torch.zeros(3, 28, 28)).shape == (3, 10)
    assert not [m for m in vit.vit(BARE, 0).modules() if isinstance(m, nn.LayerNorm)]


def test_weights_are_pytorchs_default_in_law_and_leave_the_global_state_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    model = vit.vit(USUAL, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    for layer in (m for m in model.modules() if isinstance(m, nn.Linear)):
        bound = 1 / math.sqrt(layer.in_features)
        assert 0.9 * bound < layer.weight.abs().max() <= bound
        assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.06)
    assert not torch.equal(vit.vit(USUAL, 1).embed.weight, model.embed.weight)


@pytest.mark.parametrize(("change", "message"), [
    ({"patch": 5}, "does not divide"), ({"heads": 3}, "cannot be shared"), ({"layers": 0}, "layers = 0"),
    ({"width": 32.0}, "width"), ({"mlp_width": -1}, "mlp_width"), ({"patch": True}, "patch")])
def test_impossible_networks(change, message):
    with pytest.raises(UserError, match=message):
        ViTConfig(**change)


@pytest.mark.parametrize("change", [{"epsilon": 0}, {"epsilon": math.nan}, {"learning_rate": -1.0}, {"batch": 0},
                                    {"epochs": 1.5}])
def test_impossible_training(change):
    with pytest.raises(UserError, match=f"{next(iter(change))} = "):
        Training(**change)


# --------------------------------------------------------------------------------------------------------- the training

def problem(n=40, n_test=50, seed=0):
    """Stripes against noise: the label is the half of the image that is bright."""
    generator = np.random.default_rng(seed)
    images, labels = generator.normal(0, 0.1, (n + n_test, 28, 28)), generator.integers(2, size=n + n_test)
    images[labels == 1, :14] += 1
    images[labels == 0, 14:] += 1
    return (images[:n].astype(np.float32), labels[:n]), (images[n:].astype(np.float32), labels[n:])


def test_training_stops_at_the_target_and_reports_what_the_weights_do():
    train, test = problem()
    seen = []
    outcome = vit.train_digits(train, test, 0, SMALL, QUICK, watch=lambda epoch, loss: seen.append((epoch, loss)))
    assert outcome.train_loss <= QUICK.epsilon
    assert [epoch for epoch, _ in seen] == list(range(1, outcome.epochs + 1))
    assert outcome.train_error == outcome.test_error == 0
    # the loss that is reported is the one of the final weights on all samples
    model = vit.vit(SMALL, 0)
    images, labels = torch.from_numpy(train[0]), torch.from_numpy(train[1])
    assert vit.fit(model, images, labels, 0, QUICK) == outcome.epochs
    by_hand = -torch.log_softmax(model(images), dim=1)[torch.arange(40), labels].mean()
    assert outcome.train_loss == pytest.approx(by_hand.item(), rel=1e-5)
    images, labels = map(torch.from_numpy, test)
    fresh = -torch.log_softmax(model(images), dim=1)[torch.arange(50), labels].mean()
    assert outcome.test_loss == pytest.approx(fresh.item(), rel=1e-5)


def test_the_same_seed_gives_the_same_run():
    train, test = problem()
    numbers = [dataclasses.astuple(vit.train_digits(train, test, seed, SMALL, QUICK))[:-1] for seed in (0, 0, 1)]
    assert numbers[0] == numbers[1] != numbers[2]


def test_a_target_out_of_reach_is_a_failure_and_not_a_result():
    train, test = problem()
    with pytest.raises(UserError, match=r"after 2 epochs, not yet 1e-09"):
        vit.train_digits(train, test, 0, SMALL, Training(epsilon=1e-9, epochs=2))


def test_divergence_is_named():
    train, test = problem()
    train[0][0, 0, 0] = np.nan
    with pytest.raises(UserError, match="take a smaller learning_rate"):
        vit.train_digits(train, test, 0, SMALL, QUICK)


def test_evaluation_by_hand():
    class Fixed(nn.Module):
        def forward(self, images):
            return images[:, 0, :2]

    logits = torch.tensor([[0.0, math.log(3)], [math.log(4), 0.0], [0.0, math.log(7)]])
    images = torch.zeros(3, 28, 28)
    images[:, 0, :2] = logits
    loss, error = vit.evaluate(Fixed(), images, torch.tensor([1, 1, 1]), batch=2)
    assert loss == pytest.approx((math.log(4 / 3) + math.log(5) + math.log(8 / 7)) / 3)
    assert error == pytest.approx(1 / 3)


# ------------------------------------------------------------------------------------------------------- the experiment

def test_first_look_fills_its_table_and_takes_it_up_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mnist_experiment, "PRESETS", {"small": SMALL})
    monkeypatch.setattr(mnist_experiment, "TRAINING", Training(epsilon=1.5))
    path = tmp_path / "table.csv"
    kwargs = {"n_samples": 30, "n_test": 40, "settings": ("small",)}
    done = mnist_experiment.grid(path, seeds=(0,), **kwargs).run(1)
    assert (done.computed, done.skipped) == (2, 0)
    done = mnist_experiment.grid(path, seeds=(0, 1), **kwargs).run(1)
    assert (done.computed, done.skipped) == (2, 2)
    rows, provenance = mnist_experiment.store.load(path)
    assert sorted(zip(rows["snr"], rows["seed"])) == [(0.2, 0), (0.2, 1), (2.0, 0), (2.0, 1)]
    assert (rows["train_loss"] <= 1.5).all()
    assert provenance["parameters"]["n_test"] == 40
    with pytest.raises(UserError):
        mnist_experiment.grid(path, seeds=(0,), **(kwargs | {"n_test": 41})).run(1)


def test_the_rows_are_those_of_the_cell(monkeypatch):
    """The test images of a row carry fresh noise of the row's own seed and SNR."""
    got = {}
    monkeypatch.setattr(mnist_experiment, "train_digits", lambda train, test, seed, *_, **__: got.update(
        train=train, test=test, seed=seed) or vit.Outcome(1, 0.0, 0.0, 0.0, 0.0, 0.0))
    row, = mnist_experiment.compute(mnist_experiment.Cell("usual", 20, 0.2, 7, n_test=30))
    assert (row["setting"], row["N"], row["snr"], row["seed"], got["seed"]) == ("usual", 20, 0.2, 7, 7)
    np.testing.assert_array_equal(got["train"][0], mnist.training_set(mnist.load(), 20, 0.2, 7)[0])
    np.testing.assert_array_equal(got["test"][0], mnist.fresh_set(mnist.load(), 0.2, 7, 30)[0])


def test_unknown_setting_and_bad_snr_are_refused():
    with pytest.raises(UserError, match="choose one of usual, bare"):
        mnist_experiment.Cell("unusual", 10, 0.2, 0)
    with pytest.raises(UserError, match="snr"):
        mnist_experiment.Cell("usual", 10, 0.0, 0)


def test_drop_pairs_the_seeds():
    rows = pd.DataFrame([("usual", s, seed, 10 * seed + (1.0 + 0.01 * seed if s == 0.2 else 0)) for seed in range(4)
                         for s in ((0.2, 2.0) if seed % 2 else (2.0, 0.2))],
                        columns=["setting", "snr", "seed", "test_loss"])
    drop = mnist_experiment.drop(rows, "test_loss", "usual")
    assert drop.mean == pytest.approx(1.015)
    assert drop.high - drop.low < 0.05  # not paired, it would be more than 40
    with pytest.raises(UserError, match="not every seed"):
        mnist_experiment.drop(rows.iloc[:-1], "test_loss", "usual")
    with pytest.raises(UserError, match="not every seed"):
        mnist_experiment.drop(rows, "test_loss", "bare")


def test_the_stored_table_is_what_the_chapter_says():
    """Every run reached the target, and no cell is missing."""
    rows, provenance = mnist_experiment.store.load(mnist_experiment.PATH, mnist_experiment.COMMAND)
    assert (rows["train_loss"] <= mnist_experiment.TRAINING.epsilon).all()
    assert (rows["N"] == 3000).all()
    assert provenance["parameters"]["n_test"] == 10_000
    there = {(setting, snr): tuple(some["seed"]) for (setting, snr), some in rows.groupby(["setting", "snr"])}
    assert there == {(setting, snr): some for setting, some in mnist_experiment.SEEDS.items() for snr in (0.2, 2.0)}
    assert min(map(len, there.values())) >= 3
