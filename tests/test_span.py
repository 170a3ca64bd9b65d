"""The exact reduction against torch.autograd on the full weights, at random problems, and every way to get it wrong."""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vitbo_lib import observables, span, training
from vitbo_lib.data import DataSet, SignalNoise, sample
from vitbo_lib.initialization import GaussianInit, TorchInit, sample_weights
from vitbo_lib.observables import view
from vitbo_lib.seeds import stream
from vitbo_lib.span import concatenate, first_samples, look, restore
from vitbo_lib.training import gradient_descent
from vitbo_lib.transformer import Weights

STEPS, FRESH, TOLERANCE = 50, 4, 1e-12


def softmax_f(x, w_q, w_k, w_v, w_o):
    """Eq. (1) as one line of plain torch: attention of every sample (n M M) and f (n)."""
    phi = torch.softmax((x @ w_q) @ (x @ w_k).transpose(1, 2), dim=2)
    return phi, (phi @ (x @ w_v @ w_o).unsqueeze(2)).squeeze(2).mean(1)


def autograd_descent(x, y, w, eta):
    """`STEPS` steps of gradient descent on eq. (1), d coordinates and all: final weights and loss."""
    leaves = [part.clone().requires_grad_() for part in (w.w_q, w.w_k, w.w_v)]
    for _ in range(STEPS):
        loss = torch.log1p(torch.exp(-y * softmax_f(x, *leaves, w.w_o)[1])).mean()
        changes = torch.autograd.grad(loss, leaves)
        leaves = [(leaf - eta * change).detach().requires_grad_() for leaf, change in zip(leaves, changes)]
    leaves = [leaf.detach() for leaf in leaves]
    return leaves, torch.log1p(torch.exp(-y * softmax_f(x, *leaves, w.w_o)[1])).mean()


@dataclass(frozen=True)
class Case:
    """One random problem; `size` is that of the initial logits, `rate` of the steps."""

    seed: int = 0
    n_tokens: int = 3
    n_samples: int = 4
    d: int = 12
    d_h: int = 25
    d_v: int = 3
    project: bool = True
    classes: str = "random"
    size: float = 1.0
    rate: float = 3.0

    def build(self):
        law = SignalNoise(n_tokens=self.n_tokens, d=self.d, signal_norm=2.0, sigma_p=1 / self.d**0.5,
                          sigma_p_tilde=3 / self.d**0.5, project=self.project)
        train, test = (sample(law, n, stream(self.seed, word, "labels"), stream(self.seed, word, "noise"))
                       for word, n in (("train", self.n_samples), ("test", FRESH)))
        if self.classes != "random":
            train = DataSet(train.signals, train.noise, torch.full_like(train.labels, float(self.classes)))
        init = GaussianInit(sigma_h=0.4 * (self.size / self.d_h**0.5) ** 0.5, sigma_v=0.3, w_o_norm=1.3)
        return train, test, sample_weights(init, self.d, self.d_h, self.d_v, stream(self.seed, "weights"))

    def eta(self, train, w) -> float:
        """A large step that does not yet diverge: in units of the tokens' and of the keys' squared norms."""
        x = train.tokens
        keys = max(float((x @ w.w_k).pow(2).sum(-1).max()), float((x @ w.w_q).pow(2).sum(-1).max()))
        return self.rate / float(x.pow(2).sum(-1).max()) / (1 + keys)


cases = st.builds(
    Case, seed=st.integers(0, 10**6), n_tokens=st.integers(1, 5), n_samples=st.integers(1, 6),
    d=st.sampled_from([3, 4, 7, 20, 50]), d_h=st.sampled_from([1, 3, 8, 20, 30, 60]), d_v=st.sampled_from([1, 4]),
    project=st.booleans(), classes=st.sampled_from(["random", "random", "1", "-1"]),
    size=st.sampled_from([0.01, 1.0, 10.0]), rate=st.sampled_from([0.3, 3.0, 30.0]))


def disagreements(case: Case) -> dict[str, float]:
    """How far the reduced problem is from autograd after `STEPS` steps, each in units of the largest entry."""
    train, test, w = case.build()
    eta = case.eta(train, w)
    (w_q, w_k, w_v), loss = autograd_descent(train.tokens, train.labels, w, eta)
    problem = span.reduce(train, test, w)
    trained = gradient_descent(problem, eta=eta, epsilon=1e-300, max_steps=STEPS)
    mine, seen = restore(problem, trained.coefficients, train, w), view(problem.test, trained.coefficients)
    phi, f = softmax_f(test.tokens, w_q, w_k, w_v, w.w_o)
    pairs = {"loss": (trained.train_loss[0], loss), "w_q": (mine.w_q, w_q), "w_k": (mine.w_k, w_k),
             "w_v": (mine.w_v, w_v), "w_v w_o": (mine.value_direction, w_v @ w.w_o),
             "fresh f": (seen.f[0], f), "fresh attention": (seen.phi[0], phi)}
    return {name: float((a - b).abs().max() / b.abs().max().clamp(min=0.1)) for name, (a, b) in pairs.items()}


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(cases)
@example(Case(n_tokens=1))
@example(Case(n_tokens=1, n_samples=1, d=3, d_h=1))
@example(Case(classes="1", d_h=60))
@example(Case(d_h=19))  # one below 2K = 20: hidden space as it is
@example(Case(d_h=20))
@example(Case(d_h=21))  # one above: rotated
@example(Case(size=100.0))
@example(Case(d=3, n_samples=6, n_tokens=5, d_h=60))  # more tokens than dimensions
def test_reduced_is_autograd(case):
    assert max(disagreements(case).values()) < TOLERANCE


def faulty_step(fault):
    """`Descent.step` with one thing wrong."""
    def step(self, eta):
        logits, values = self._at_tokens.logits.flatten(0, 1), self._at_tokens.values
        scale = self._scale
        if fault == "sign of eta":
            eta = -eta
        if fault == "1/M dropped":
            logits = logits * logits.shape[-1]
        if fault == "w_O dropped":
            scale = torch.ones_like(scale)
        other = logits if fault == "S for S^T" else logits.mT
        queries = self._queries.clone()
        self._moved[0].baddbmm_(logits, self._keys, alpha=-eta)
        if fault == "new queries":
            self.evaluate()
            queries = self._queries
        self._moved[1].baddbmm_(other, queries, alpha=-eta)
        self._moved[2].addcmul_(values, scale, value=-eta)
    return step


@pytest.mark.parametrize("fault", ["none", "sign of eta", "1/M dropped", "w_O dropped", "S for S^T", "new queries"])
def test_wrong_steps_are_caught(monkeypatch, fault):
    """The same replacement without a fault passes."""
    monkeypatch.setattr(training.Descent, "step", faulty_step(fault))
    worst = max(disagreements(Case(rate=10.0)).values())
    assert worst < TOLERANCE if fault == "none" else worst > 1e-4


def test_swapped_tokens_are_caught(monkeypatch):
    """The second and third token of every training sample change places in the inner products."""
    right, columns = span.stack, torch.arange(12).view(4, 3)[:, [0, 2, 1]].flatten()

    def wrong(*parts):
        points = right(*parts)
        return dataclasses.replace(points, cross=points.cross[..., columns])

    monkeypatch.setattr(span, "stack", wrong)
    assert max(disagreements(Case()).values()) > 1e-3


def test_dropped_outside_logits_are_caught(monkeypatch):
    """Only fresh points notice, and only where hidden space was rotated."""
    right = span.assemble

    def without(*parts):
        problem = right(*parts)
        return dataclasses.replace(problem, test=dataclasses.replace(problem.test, outside_logits=None))

    monkeypatch.setattr(span, "assemble", without)
    found = disagreements(Case(d_h=60))
    assert found["loss"] < TOLERANCE
    assert found["fresh attention"] > 1e-3
    assert max(disagreements(Case(d_h=20)).values()) < TOLERANCE


def test_outside_logits_are_the_part_outside():
    """<q, (1 - B B^T) k> of fresh tokens, written directly; zero for the signals, which training sees."""
    train, test, w = Case(d_h=60).build()
    problem = span.reduce(train, test, w)
    basis = problem.hidden_basis[0]
    outside = torch.eye(60, dtype=torch.float64) - basis @ basis.T
    expected = (test.tokens @ w.w_q) @ outside @ (test.tokens @ w.w_k).mT
    assert torch.allclose(problem.test.outside_logits[0], expected, atol=1e-13)
    assert expected[:, 0].abs().max() < 1e-13
    assert expected[:, 1:, 1:].abs().min() > 1e-6


def test_hidden_space_shrinks_to_2k_and_no_further():
    for d_h, h in ((19, 19), (20, 20), (21, 20), (60, 20)):
        train, test, w = Case(d_h=d_h).build()
        assert span.reduce(train, test, w).train.start.queries.shape[-1] == h


def test_a_batch_is_its_runs():
    problems = [span.reduce(*Case(seed=seed, d_h=60).build()) for seed in range(3)]
    joined = concatenate(problems)
    assert joined.runs == 3
    for r, one in enumerate(problems):
        back = joined.run([r])
        for a, b in ((back.train.cross, one.train.cross), (back.test.outside_logits, one.test.outside_logits),
                     (back.test.start.keys, one.test.start.keys), (back.hidden_basis, one.hidden_basis)):
            assert torch.equal(a, b)


def test_first_samples_are_a_smaller_problem():
    """Keeping n of N samples is the reduction of the first n points."""
    train, _, w = Case(n_samples=5).build()
    fewer = DataSet(train.signals, train.noise[:2], train.labels[:2])
    kept, expected = first_samples(look(train, w), 2), look(fewer, w)
    for name in ("queries", "keys", "values", "inner_products", "labels"):
        assert torch.allclose(getattr(kept, name), getattr(expected, name), atol=1e-13)


def test_uniform_weights_reduce_too():
    """The reduction never asked for Gaussian weights."""
    train, test, _ = Case().build()
    w = sample_weights(TorchInit(scale=2.0), 12, 60, 4, stream(0, "weights"))
    problem = span.reduce(train, test, w)
    start = problem.train.start.map(torch.zeros_like)
    phi, f = softmax_f(test.tokens, w.w_q, w.w_k, w.w_v, w.w_o)
    seen = observables.view(problem.test, start)
    assert torch.allclose(seen.phi[0], phi, atol=1e-13)
    assert torch.allclose(seen.f[0], f, atol=1e-13)


def test_zero_and_dependent_weights():
    """Queries and keys of rank 0 or 1 leave a basis of full size, and no NaN."""
    train, test, w = Case(d_h=60).build()
    for factor in (torch.zeros(60, dtype=torch.float64), torch.eye(60, dtype=torch.float64)[0]):
        flat = Weights(w.w_q * factor, w.w_k * factor, w.w_v, w.w_o)
        problem = span.reduce(train, test, flat)
        basis = problem.hidden_basis[0]
        assert torch.allclose(basis.T @ basis, torch.eye(20, dtype=torch.float64), atol=1e-13)
        phi, _ = softmax_f(test.tokens, flat.w_q, flat.w_k, flat.w_v, flat.w_o)
        assert torch.allclose(view(problem.test, problem.train.start.map(torch.zeros_like)).phi[0], phi, atol=1e-13)
