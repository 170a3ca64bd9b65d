"""One step of gradient descent at the sizes of Appendix A (benign): the reduction against plain autograd."""

import torch

from benchmarks.timing import Ratio, compare
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import TorchInit
from vitbo_lib.simulation import Setting, build, sample_full
from vitbo_lib.training import Descent

SETTING = Setting(law=SignalNoise(n_tokens=4, d=2048, signal_norm=25, sigma_p=0.05, sigma_p_tilde=1, project=False),
                  n_samples=16, d_h=1024, d_v=256, init=TorchInit(), n_test=1)
BATCH = 64


def autograd_step(dtype: torch.dtype = torch.float32):
    """A step of eq. (1) as one writes it in torch; returns the function that takes it."""
    full = sample_full(SETTING, 0, dtype)
    tokens, labels, w_o = full.train.tokens, full.train.labels, full.weights.w_o
    weights = [part.clone().requires_grad_() for part in (full.weights.w_q, full.weights.w_k, full.weights.w_v)]
    optimizer = torch.optim.SGD(weights, lr=SETTING.eta)

    def step():
        w_q, w_k, w_v = weights
        phi = torch.softmax((tokens @ w_q) @ (tokens @ w_k).mT, dim=-1)
        f = (phi @ (tokens @ w_v) @ w_o).mean(-1)
        optimizer.zero_grad()
        torch.nn.functional.softplus(-labels * f).mean().backward()
        optimizer.step()

    return step


def reduced_step(runs: int):
    """A step of the reduced problem, `runs` at once, in float64, with the test for the end that training makes."""
    descent = Descent(build(SETTING, "reduced", range(runs)))

    def step():
        with torch.no_grad():
            assert descent.evaluate().min() > 0
            descent.step(SETTING.eta)

    return step


def ratios() -> list[Ratio]:
    """One problem, and 64 at once, both on two threads."""
    torch.set_num_threads(2)
    base = autograd_step()
    return [compare("GD step, App. A sizes: autograd float32 / reduced float64", base, reduced_step(1), wanted=">= 60",
                    base_times=5, ours_times=200),
            compare(f"the same, {BATCH} problems at once, per problem", base, reduced_step(BATCH), wanted=">= 150",
                    base_times=5, ours_times=20, per=BATCH)]
