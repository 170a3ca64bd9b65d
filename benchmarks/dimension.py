"""What a simulation costs at d = 1e16, d_h = 1e9 against d = d_h = 1e3: drawn directly, the same N, M and steps."""

import math

import torch

from benchmarks.timing import Ratio, compare
from vitbo_lib.data import SignalNoise
from vitbo_lib.initialization import GaussianInit
from vitbo_lib.simulation import Setting, simulate


def setting(d: float, d_h: float) -> Setting:
    """Sizes of Appendix A, scaled so that norms of tokens, queries and keys do not depend on d and d_h."""
    law = SignalNoise(n_tokens=4, d=d, signal_norm=25, sigma_p=2.2 / math.sqrt(d), sigma_p_tilde=44 / math.sqrt(d))
    init = GaussianInit(sigma_h=0.03 / math.sqrt(d_h), sigma_v=1e-3)
    return Setting(law=law, n_samples=16, d_h=d_h, init=init, eta=0.001, epsilon=1e-6, max_steps=300, n_test=200)


def ratios() -> list[Ratio]:
    """Draw, 300 steps and observables of 4 seeds."""
    torch.set_num_threads(2)
    large, small = setting(1e16, 1e9), setting(1e3, 1e3)
    return [compare("simulate: d = 1e16, d_h = 1e9 / d = d_h = 1e3", lambda: simulate(large, range(4)),
                    lambda: simulate(small, range(4)), wanted="<= 1.1", rounds=11)]
