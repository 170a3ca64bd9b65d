"""The vision transformer of the paper's Figure 2: two attention layers of four heads, then an MLP with ReLU.

The paper says no more about it. `ViTConfig` has one field for each thing that one must know to build it; `USUAL` and
`BARE` are two answers. Written in plain torch.nn, so that it can be read beside eq. (1): one attention layer is
softmax(Q K^T / sqrt(head width)) V for each head, its heads side by side, then a linear map.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from vitbo_lib.errors import UserError
from vitbo_lib.seeds import stream


@dataclass(frozen=True)
class ViTConfig:
    """Everything that decides the network; each field but `heads` and `layers` is a choice where the paper is silent.

    `patch`: pixels along a patch, the image is cut into (side / patch)^2 tokens; `width`: coordinates of a token inside
    the network; `mlp_width`: hidden units of the MLP, which maps the mean of the output tokens to `classes` logits;
    `positional`: add a learned code to each place; `layer_norm`: normalise before each layer and before the mean;
    `residual`: add a layer's input to its output; `scaled`: divide attention logits by sqrt(width / heads).

    >>> ViTConfig().tokens, ViTConfig(patch=4).tokens
    (16, 49)
    >>> ViTConfig(patch=5)
    Traceback (most recent call last):
        ...
    vitbo_lib.errors.UserError: patch = 5 does not divide the side 28; choose a divisor of it
    """

    patch: int = 7
    width: int = 32
    heads: int = 4
    layers: int = 2
    mlp_width: int = 64
    positional: bool = True
    layer_norm: bool = True
    residual: bool = True
    scaled: bool = True
    side: int = 28
    classes: int = 10

    def __post_init__(self):
        for name in ("patch", "width", "heads", "layers", "mlp_width", "side", "classes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name} = {value!r} is not possible; give a whole number of at least 1")
        if self.side % self.patch:
            raise UserError(f"patch = {self.patch} does not divide the side {self.side}; choose a divisor of it")
        if self.width % self.heads:
            raise UserError(f"width = {self.width} cannot be shared among {self.heads} heads; choose a multiple of it")

    @property
    def tokens(self) -> int:
        return (self.side // self.patch) ** 2


USUAL = ViTConfig()
BARE = ViTConfig(positional=False, layer_norm=False, residual=False)
PRESETS = {"usual": USUAL, "bare": BARE}


def patches(images: Tensor, patch: int) -> Tensor:
    """Cut images (N, side, side) into tokens (N, M, patch^2), row by row; each token is one square, read row by row.

    >>> patches(torch.arange(16.0).reshape(1, 4, 4), 2)[0, 1].tolist()
    [2.0, 3.0, 6.0, 7.0]
    """
    n, side, _ = images.shape
    grid = images.reshape(n, side // patch, patch, side // patch, patch)
    return grid.transpose(2, 3).reshape(n, -1, patch * patch)


class Attention(nn.Module):
    """Self-attention with several heads: concatenate softmax(Q_a K_a^T / sqrt(w)) V_a over heads a, then a linear map.

    Input and output (N, M, width); each head has w = width / heads coordinates. Without `scaled` there is no sqrt(w).
    The same function as `torch.nn.MultiheadAttention`; a test compares.
    """

    def __init__(self, width: int, heads: int, scaled: bool = True):
        super().__init__()
        self.heads = heads
        self.scale = 1 / math.sqrt(width // heads) if scaled else 1.0
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def maps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Attention (N, heads, M, M), whose rows add up to 1, and the values (N, heads, M, w)."""
        n, m, width = x.shape
        q, k, v = self.qkv(x).reshape(n, m, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return torch.softmax(q @ k.transpose(-1, -2) * self.scale, dim=-1), v

    def forward(self, x: Tensor) -> Tensor:
        weights, values = self.maps(x)
        return self.out((weights @ values).transpose(1, 2).reshape(x.shape))


class ViT(nn.Module):
    """Images (N, side, side) to logits (N, classes): linear map of patches, attention layers, mean over tokens, MLP.

    With `config.residual` a layer adds to its input, as in the usual vision transformer; the usual MLP inside each
    layer is missing, because the paper puts one MLP after the attention layers. `vit(config, seed)` builds one with
    reproducible weights.
    """

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = config
        self.embed = nn.Linear(config.patch**2, config.width)
        self.positions = nn.Parameter(torch.zeros(config.tokens, config.width)) if config.positional else None
        self.attention = nn.ModuleList(Attention(config.width, config.heads, config.scaled)
                                       for _ in range(config.layers))
        self.norms = nn.ModuleList(nn.LayerNorm(config.width) if config.layer_norm else nn.Identity()
                                   for _ in range(config.layers + 1))
        self.mlp = nn.Sequential(nn.Linear(config.width, config.mlp_width), nn.ReLU(),
                                 nn.Linear(config.mlp_width, config.classes))

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(patches(images, self.config.patch))
        if self.positions is not None:
            x = x + self.positions
        for norm, attention in zip(self.norms, self.attention):
            y = attention(norm(x))
            x = x + y if self.config.residual else y
        return self.mlp(self.norms[-1](x).mean(dim=1))


def vit(config: ViTConfig, seed: int, dtype: torch.dtype = torch.float32) -> ViT:
    """A network with reproducible initial weights, drawn from the stream (seed, "mnist", "weights").

    Linear layers are uniform on +-1 / sqrt(inputs), weights and biases, as in PyTorch's default; positional codes are
    normal with standard deviation 0.02. No global random state is used or changed.

    >>> bool((vit(USUAL, 3).embed.weight == vit(USUAL, 3).embed.weight).all())
    True
    """
    with torch.random.fork_rng(devices=[]):  # the constructors draw weights that are replaced below
        model = ViT(config).to(dtype)
    generator = stream(seed, "mnist", "weights")
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                bound = 1 / math.sqrt(module.in_features)
                for parameter in (module.weight, module.bias):
                    drawn = generator.uniform(-bound, bound, size=tuple(parameter.shape))
                    parameter.copy_(torch.from_numpy(drawn))
        if model.positions is not None:
            model.positions.copy_(torch.from_numpy(generator.normal(0, 0.02, size=tuple(model.positions.shape))))
    return model


@torch.no_grad()
def evaluate(model: ViT, images: Tensor, labels: Tensor, batch: int = 1000) -> tuple[float, float]:
    """Mean cross entropy (nats) and share of wrong predictions on images (T, side, side) with labels (T,).

    A network that knows nothing has log 10 = 2.303 and 0.9.
    """
    loss = wrong = 0.0
    for start in range(0, len(images), batch):
        logits, target = model(images[start:start + batch]), labels[start:start + batch]
        loss += float(nn.functional.cross_entropy(logits, target, reduction="sum"))
        wrong += int((logits.argmax(dim=1) != target).sum())
    return loss / len(images), wrong / len(images)


@dataclass(frozen=True)
class Training:
    """How the network is trained: Adam with mini-batches until the mean training loss is at most `epsilon`.

    The paper gives the target loss and nothing else; `epochs` is a cap that ends in a failure, not in a result.
    """

    epsilon: float = 0.01
    learning_rate: float = 2e-3
    batch: int = 50
    epochs: int = 1000

    def __post_init__(self):
        for name in ("epsilon", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"{name} = {getattr(self, name)!r} is not possible; give a finite number above 0")
        for name in ("batch", "epochs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name} = {value!r} is not possible; give a whole number of at least 1")


# Measuring the loss on the whole training set costs a third of an epoch: not worth it far from the target.
_NEAR = 5


def fit(model: ViT, images: Tensor, labels: Tensor, seed: int, training: Training | None = None,
        watch: Callable[[int, float], None] | None = None, progress: bool | None = None) -> int:
    """Train `model` in place on a FIXED training set until its mean loss is at most epsilon; returns the epochs taken.

    Images (N, side, side), labels (N,). Each epoch visits every sample once, in an order from the stream
    (seed, "mnist", "batches"). The stop is decided by the loss of the whole set under the weights at the end of an
    epoch; it is looked at once the running mean of the epoch is below 5 epsilon. `watch` is called with each epoch and
    its running mean; a bar is shown if `progress`, by default on a terminal only. `UserError` when the cap of epochs is
    reached first, or the loss is no number any more.
    """
    training = training or Training()
    optimizer = torch.optim.Adam(model.parameters(), lr=training.learning_rate, fused=True)
    order = stream(seed, "mnist", "batches")
    shown = sys.stderr.isatty() if progress is None else progress
    bar = tqdm(range(1, training.epochs + 1), unit="epoch", leave=False, disable=not shown)
    running = math.inf
    for epoch in bar:
        running = 0.0
        for chosen in torch.from_numpy(order.permutation(len(images))).split(training.batch):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            running += loss.item() * len(chosen) / len(images)
        if not math.isfinite(running):
            break
        bar.set_postfix_str(f"loss {running:.4f}", refresh=False)
        if watch is not None:
            watch(epoch, running)
        if running <= _NEAR * training.epsilon and evaluate(model, images, labels)[0] <= training.epsilon:
            bar.close()
            return epoch
    bar.close()
    if not math.isfinite(running):
        raise UserError(f"training diverged: the loss is {running} in epoch {epoch}; take a smaller learning_rate")
    raise UserError(f"the training loss is {running:.3g} after {training.epochs} epochs, not yet {training.epsilon:g}; "
                    "allow more epochs, or raise epsilon")


@dataclass(frozen=True)
class Outcome:
    """What one training run ends with: losses in nats, errors as shares, wall time in seconds."""

    epochs: int
    train_loss: float
    train_error: float
    test_loss: float
    test_error: float
    seconds: float


def train_digits(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray], seed: int,
                 config: ViTConfig = USUAL, training: Training | None = None, dtype: torch.dtype = torch.float32,
                 watch: Callable[[int, float], None] | None = None, progress: bool | None = None) -> Outcome:
    """Train a fresh network on `train` to the target loss and measure it on `test`; each is (images, labels).

    Images (N, side, side) and labels (N,), from `vitbo_lib.mnist.training_set` and `fresh_set`. The same arguments give
    the same numbers on one machine and one number of threads. `UserError` as in `fit`.
    """
    start = time.perf_counter()
    images, labels = (torch.from_numpy(np.array(part)) for part in train)
    model = vit(config, seed, dtype)
    epochs = fit(model, images.to(dtype), labels, seed, training, watch, progress)
    train_loss, train_error = evaluate(model, images.to(dtype), labels)
    fresh, answers = (torch.from_numpy(np.array(part)) for part in test)
    test_loss, test_error = evaluate(model, fresh.to(dtype), answers)
    return Outcome(epochs, train_loss, train_error, test_loss, test_error, time.perf_counter() - start)
