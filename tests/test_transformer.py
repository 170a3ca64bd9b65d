"""Eq. (1) against sums written out, its gradients against autograd, finite differences and the printed lemma."""

import math

import pytest
import torch

from vitbo_lib import transformer
from vitbo_lib.transformer import Weights, attention, errors, forward, gradients, loss, sample_losses, token_gradients

N, M, D, H, D_V = 3, 4, 6, 5, 2


def problem(seed=0, batch=()):
    made = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*batch, *shape, generator=made, dtype=torch.float64)

    labels = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64).expand(*batch, N)
    return normal(N, M, D), labels, Weights(normal(D, H) * 0.5, normal(D, H) * 0.5, normal(D, D_V), normal(D_V))


def f_by_sums(x, w) -> float:
    """Eq. (1) for one sample, number by number."""
    a = x @ w.w_q @ w.w_k.T @ x.T
    total = 0.0
    for i in range(len(x)):
        top = max(float(a[i, j]) for j in range(len(x)))
        e = [math.exp(float(a[i, j]) - top) for j in range(len(x))]
        total += sum(e[j] / sum(e) * float(x[j] @ w.w_v @ w.w_o) for j in range(len(x)))
    return total / len(x)


def autograd(x, y, w):
    leaves = [part.clone().requires_grad_() for part in (w.w_q, w.w_k, w.w_v)]
    value = torch.log1p(torch.exp(-y * forward(x, Weights(*leaves, w.w_o)))).mean()
    return value, torch.autograd.grad(value, leaves)


def gradient_error(x, y, w) -> float:
    value, expected = autograd(x, y, w)
    mine, parts = gradients(x, y, w)
    differences = [(a - b).abs().max() / b.abs().max() for a, b in zip((parts.w_q, parts.w_k, parts.w_v), expected)]
    return float(max(*differences, (mine - value).abs() / value))


def test_forward_is_equation_1():
    x, _, w = problem()
    assert forward(x, w).tolist() == pytest.approx([f_by_sums(one, w) for one in x], rel=1e-13)


def test_gradients_are_autograds():
    assert max(gradient_error(*problem(seed)) for seed in range(5)) < 1e-13


def test_gradients_are_finite_differences():
    """Central differences, entry by entry, of a loss that is itself a sum of logs written here."""
    x, y, w = problem()
    _, parts = gradients(x, y, w)

    def value():
        return sum(math.log1p(math.exp(-float(s) * f_by_sums(one, w))) for one, s in zip(x, y)) / N

    step = 1e-5
    for weight, gradient in ((w.w_q, parts.w_q), (w.w_k, parts.w_k), (w.w_v, parts.w_v)):
        for i, j in ((0, 0), (2, 1), (5, weight.shape[1] - 1)):
            kept = float(weight[i, j])
            weight[i, j] = kept + step
            up = value()
            weight[i, j] = kept - step
            down = value()
            weight[i, j] = kept
            assert float(gradient[i, j]) == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-10)
    assert (gradients(x, y, w)[1].w_o == 0).all()


def test_gradient_is_the_corrected_lemma_b1():
    """W_Q of Lemma B.1 as sums over n and l; the printed minus before the noise queries' sum is no gradient."""
    x, y, w = problem()
    expected = autograd(x, y, w)[1][0]

    def lemma(sign_of_noise):
        total = torch.zeros_like(w.w_q)
        for one, s in zip(x, y):
            v, k = one @ w.w_v @ w.w_o, one @ w.w_k
            slope = -1 / (1 + math.exp(float(s) * f_by_sums(one, w)))
            for i, query in enumerate(one):
                phi = torch.softmax(query @ w.w_q @ k.T, 0)
                jacobian = torch.diag(phi) - torch.outer(phi, phi)
                sign = 1 if i == 0 else sign_of_noise
                total += sign * s * slope / (N * M) * torch.outer(query, v @ jacobian @ k)
        return total

    assert torch.allclose(lemma(1), expected, rtol=1e-12, atol=1e-15)
    assert not torch.allclose(lemma(-1), expected, rtol=0.1)


def with_fault(name, right=token_gradients):
    """`token_gradients` with one thing wrong."""
    def wrong(phi, values, labels):
        value, at = right(phi, values, labels)
        logits = {"transposed": at.logits.mT, "sign": -at.logits, "M dropped": at.logits * phi.shape[-1],
                  "no centering": at.logits + phi * 0.1}.get(name, at.logits)
        at_values = {"sign of values": -at.values, "N dropped": at.values * labels.shape[-1]}.get(name, at.values)
        return value, transformer.TokenGradients(logits, at_values)
    return wrong


@pytest.mark.parametrize("fault", ["transposed", "sign", "M dropped", "no centering", "sign of values", "N dropped"])
def test_wrong_gradients_are_caught(monkeypatch, fault):
    monkeypatch.setattr(transformer, "token_gradients", with_fault(fault))
    assert gradient_error(*problem()) > 0.05


def test_leading_axes_are_free():
    """A batch of problems gives what each gives alone."""
    x, y, w = problem(batch=(2, 3))
    value, parts = gradients(x, y, w)
    assert value.shape == (2, 3)
    one = Weights(w.w_q[1, 2], w.w_k[1, 2], w.w_v[1, 2], w.w_o[1, 2])
    alone, alone_parts = gradients(x[1, 2], y[1, 2], one)
    assert torch.allclose(value[1, 2], alone, rtol=1e-13)
    assert torch.allclose(parts.w_k[1, 2], alone_parts.w_k, rtol=1e-12, atol=1e-14)
    assert torch.allclose(loss(x, y, w), value, rtol=1e-13)


def test_attention_rows_are_the_queries():
    """One query that sees key 0 only, one that sees all alike: the rows, not the columns, sum to 1."""
    phi = attention(torch.tensor([[50.0], [0.0]]), torch.tensor([[1.0], [0.0]]))
    assert phi.tolist() == [[pytest.approx(1), pytest.approx(0, abs=1e-20)], [0.5, 0.5]]


@pytest.mark.parametrize("margin", [1e4, -1e4, 1e300, -1e300, 800.0, -800.0])
def test_huge_margins(margin):
    """log(1 + e^-z) is z for z very negative and 0 for z very positive; the derivative is -1 or 0; none overflows."""
    f, y = torch.tensor([margin], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert float(sample_losses(f, y)[0]) == pytest.approx(max(-margin, 0.0), rel=1e-15, abs=1e-300)
    _, at = token_gradients(torch.ones(1, 1, 1, dtype=torch.float64), f.unsqueeze(0), y)
    assert float(at.values) == pytest.approx(-1.0 if margin < 0 else 0.0, abs=1e-300)


def test_small_losses_keep_their_digits():
    """At margin 40 the loss is e^-40, not 0."""
    f = torch.tensor([40.0], dtype=torch.float64)
    assert float(sample_losses(f, torch.ones(1, dtype=torch.float64))[0]) == pytest.approx(math.exp(-40), rel=1e-12)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e150])
def test_huge_logits(scale):
    """Logits far beyond e^709 give a hard maximum and finite gradients."""
    x, y, w = problem()
    big = Weights(w.w_q * scale, w.w_k, w.w_v, w.w_o)
    value, parts = gradients(x, y, big)
    assert value.isfinite()
    assert all(part.isfinite().all() for part in (parts.w_q, parts.w_k, parts.w_v))
    phi = attention(x @ big.w_q, x @ big.w_k)
    assert torch.allclose(phi.sum(-1), torch.ones(N, M, dtype=torch.float64))


def test_an_output_of_zero_is_an_error():
    assert errors(torch.tensor([0.0, 2.0, -2.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, -1.0])).tolist() == [1, 0, 1, 1]


def test_loss_is_exact_where_torch_takes_its_asymptote():
    """Beyond 20 torch's softplus is z itself, 2e-9 off; ours has the last bits, in value and in slope."""
    margins = torch.tensor([21.0, 30.0, 39.0], dtype=torch.float64, requires_grad=True)
    losses = sample_losses(-margins, torch.ones(3, dtype=torch.float64))
    exact = margins.detach() + torch.log1p(torch.exp(-margins.detach()))
    assert torch.equal(losses.detach(), exact)
    (slope,) = torch.autograd.grad(losses.sum(), margins)
    assert torch.allclose(slope, torch.sigmoid(margins.detach()), rtol=0, atol=1e-15)
    assert float((torch.nn.functional.softplus(margins.detach()) - exact).abs().max()) > 1e-10  # the fault
