"""One step of gradient descent at the sizes of Appendix A (benign): the reduction against plain autograd."""

import torch

from benchmarks.timing import Ratio, compare
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import TorchInit
from vitbo_lib.simulation import Setting, build, sample_full
from vitbo_lib.training import gradient_descent

SETTING = Setting(law=SignalNoise(n_tokens=4, d=2048, signal_norm=25, sigma_p=0.05, sigma_p_tilde=1, project=False),
                  n_samples=16, d_h=1024, d_v=256, init=TorchInit(), n_test=1)
BATCH = 64
STEPS = 100


def autograd_steps(steps: int, dtype: torch.dtype = torch.float32):
    """Steps of eq. (1) as one writes them in torch; returns the function that takes them."""
    full = sample_full(SETTING, 0, dtype)
    tokens, labels, w_o = full.train.tokens, full.train.labels, full.weights.w_o
    weights = [part.clone().requires_grad_() for part in (full.weights.w_q, full.weights.w_k, full.weights.w_v)]
    optimizer = torch.optim.SGD(weights, lr=SETTING.eta)

    def take():
        for _ in range(steps):
            w_q, w_k, w_v = weights
            phi = torch.softmax((tokens @ w_q) @ (tokens @ w_k).mT, dim=-1)
            f = (phi @ (tokens @ w_v) @ w_o).mean(-1)
            optimizer.zero_grad()
            torch.nn.functional.softplus(-labels * f).mean().backward()
            optimizer.step()

    return take


def reduced_steps(runs: int):
    """The same number of steps, `STEPS`, of `runs` reduced problems in float64, as the library takes them."""
    problem = build(SETTING, "reduced", range(runs))
    return lambda: gradient_descent(problem, eta=SETTING.eta, epsilon=1e-12, max_steps=STEPS)


def ratios() -> list[Ratio]:
    """One problem, and 64 at once, both on two threads; seconds are those of one step of one problem."""
    torch.set_num_threads(2)
    base = autograd_steps(3)
    return [compare("GD step, App. A sizes: autograd float32 / reduced float64", base, reduced_steps(1),
                    wanted=">= 60", base_steps=3, our_steps=STEPS),
            compare(f"the same, {BATCH} problems at once, per problem", base, reduced_steps(BATCH), wanted=">= 150",
                    base_steps=3, our_steps=STEPS * BATCH)]
