"""Settings, seeds and batches: the same seed gives the same row, on any engine's path, precision and device."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vitbo_lib import simulation, training
from vitbo_lib.data import SignalNoise
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit, TorchInit
from vitbo_lib.observables import observe
from vitbo_lib.simulation import Setting, build, sample_full, simulate, train, trajectory
from vitbo_lib.span import Triple
from vitbo_lib.training import Descent

LAW = SignalNoise(n_tokens=3, d=30, signal_norm=3, sigma_p=0.2, sigma_p_tilde=0.6)
SETTING = Setting(law=LAW, n_samples=4, d_h=50, d_v=3, init=GaussianInit(sigma_h=0.12, sigma_v=0.1), eta=0.1,
                  epsilon=0.1, max_steps=400, n_test=20)
ENGINES = ("drawn", "reduced")


def rows(*args, **options) -> pd.DataFrame:
    return simulate(SETTING, *args, **options).drop(columns="seconds")


def same(a: pd.DataFrame, b: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(a.reset_index(drop=True), b.reset_index(drop=True), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("engine", [*ENGINES, "full"])
def test_a_seed_gives_its_row_whatever_the_batch(monkeypatch, engine):
    table = rows([3, 0, 7], engine)
    same(table, pd.concat([rows([seed], engine) for seed in (3, 0, 7)]))
    monkeypatch.setattr(simulation, "MEMORY", 1)
    assert simulation.runs_per_batch(SETTING) == 1
    same(table, rows([3, 0, 7], engine))
    same(table[table.seed == 7], rows([7, 9], engine).query("seed == 7"))


def test_a_row_that_depends_on_its_batch_is_caught(monkeypatch):
    """Seeds by position in the batch instead of by name."""
    right = simulation.build
    monkeypatch.setattr(simulation, "build", lambda setting, engine, seeds, *rest: right(setting, engine,
                                                                                        range(len(seeds)), *rest))
    with pytest.raises(AssertionError):
        same(rows([3, 0, 7]), pd.concat([rows([seed]) for seed in (3, 0, 7)]))


def test_reduced_rows_are_full_rows():
    same(rows(range(4), "reduced"), rows(range(4), "full"))


def test_reduced_rows_are_full_rows_with_uniform_weights():
    setting = dataclasses.replace(SETTING, init=TorchInit(scale=0.5))
    same(*(simulate(setting, [0, 1], engine).drop(columns="seconds") for engine in ("reduced", "full")))


def test_the_mean_over_many_fresh_points_is_unbiased():
    """400 runs of 20 fresh points that share weights in full and do not in the draw: mean test loss and error agree
    (|z| < 4)."""
    a, b = (simulate(dataclasses.replace(SETTING, max_steps=60), seeds, engine)
            for engine, seeds in (("drawn", range(400)), ("reduced", range(400))))
    for name in ("test_loss", "test_error", "train_loss", "v_xi2"):
        error = math.sqrt((a[name].var() + b[name].var()) / 400)
        assert abs(a[name].mean() - b[name].mean()) < 4 * error, name


# Streams


def shared_words(full) -> int:
    """Noise vectors of fresh points that are also noise vectors of training points, up to sign and scale."""
    train, test = (data.noise.flatten(0, 1) for data in (full.train, full.test))
    cosines = (train @ test.T) / train.norm(dim=1).unsqueeze(1) / test.norm(dim=1)
    return int((cosines.abs() > 1 - 1e-9).sum())


def test_train_and_test_share_no_noise_vector():
    assert shared_words(sample_full(SETTING, 0)) == 0


def test_one_word_for_train_and_test_is_caught(monkeypatch):
    right = simulation.stream
    monkeypatch.setattr(simulation, "stream", lambda seed, *words: right(seed, *(word.replace("test", "train")
                                                                                for word in words)))
    assert shared_words(sample_full(SETTING, 0)) >= 8


def test_no_stream_is_used_twice(monkeypatch):
    """Every engine asks for each stream once."""
    from vitbo_lib import draw

    for engine in ENGINES:
        asked = []
        for module in (simulation, draw):
            monkeypatch.setattr(module, "stream", lambda seed, *words: asked.append((seed, words)) or  # noqa: B023
                                np.random.default_rng(len(asked)))  # noqa: B023
        build(SETTING, engine, [0, 1])
        assert len(asked) == len(set(asked)) >= 10


def test_the_first_samples_do_not_depend_on_n():
    few, many = (sample_full(dataclasses.replace(SETTING, n_samples=n), 5) for n in (2, 9))
    assert torch.equal(few.train.tokens, many.train.tokens[:2])
    assert torch.equal(few.train.labels, many.train.labels[:2])
    assert torch.equal(few.weights.w_q, many.weights.w_q)
    assert torch.equal(few.test.tokens, many.test.tokens)


# Precision and device


class Recorder(TorchDispatchMode):
    """Precisions of every floating tensor that an operation takes or returns.

    NumPy's arrays, always double, enter through a lift and must be converted at once: what a conversion takes is free.
    """

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is not torch.ops.aten.lift_fresh.default:
            taken = () if func is torch.ops.aten._to_copy.default else args
            parts = pytree.tree_leaves((taken, result))
            self.seen |= {part.dtype for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()}
        return result


def precisions(engine: str, dtype: torch.dtype, method: str = "gd") -> set:
    with Recorder() as recorder:
        problem = build(SETTING, engine, [0, 1], dtype=dtype)
        trained = train(SETTING, problem, method)
        observe(problem, trained.coefficients)
    return recorder.seen


@pytest.mark.parametrize("method", ["gd", "flow"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_precision_from_the_draw_to_the_observables(engine, method, dtype):
    assert precisions(engine, dtype, method) == {dtype}


def test_another_precision_is_caught(monkeypatch):
    right = training.token_gradients
    monkeypatch.setattr(training, "token_gradients",
                        lambda phi, values, labels: right(phi, values.double().abs().to(values.dtype), labels))
    assert torch.float64 in precisions("drawn", torch.float32)


def test_single_precision_agrees():
    a, b = (simulate(SETTING, [0, 1, 2], dtype=dtype) for dtype in (torch.float32, torch.float64))
    for name in ("test_loss", "attention_signal", "v_xi2"):
        assert np.allclose(a[name], b[name], rtol=0.05, atol=1e-3), name


@pytest.mark.parametrize("engine", ENGINES)
def test_every_tensor_is_made_on_the_device(engine):
    """On the device "meta", which holds no numbers: one tensor elsewhere would be an error or be seen in the end."""
    problem = build(SETTING, engine, [0, 1], device="meta")
    descent = Descent(problem)
    descent.evaluate()
    descent.step(0.1)
    observed = observe(problem, descent.coefficients)
    for part in (*problem.train.start.parts, *problem.test.start.parts, problem.train.cross, problem.test.cross,
                 problem.test.outside_logits, problem.w_o_norm_squared, problem.train.labels, problem.test.labels,
                 *descent.coefficients.parts, *observed.values()):
        assert part.device.type == "meta"


class Elsewhere(TorchFunctionMode):
    """Makes "meta" the device of whatever does not say where it belongs."""

    makers = (torch.zeros, torch.ones, torch.full, torch.arange, torch.empty, torch.tensor, torch.as_tensor, torch.eye)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in self.makers and "device" not in kwargs:
            kwargs = kwargs | {"device": "meta"}
        return func(*args, **kwargs)


def run_elsewhere(engine: str, method: str) -> Triple:
    with Elsewhere():
        problem = build(SETTING, engine, [0, 1])
        trained = train(SETTING, problem, method)
        observed = observe(problem, trained.coefficients)
    kept = [*trained.coefficients.parts, trained.time, trained.train_loss, trained.reached, *observed.values()]
    assert {part.device.type for part in kept} == {"cpu"}
    return trained.coefficients


@pytest.mark.parametrize("method", ["gd", "flow"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_new_tensor_says_where_it_belongs(engine, method):
    run_elsewhere(engine, method)


def test_a_tensor_that_does_not_say_where_is_caught(monkeypatch):
    right = training._Ledger.__init__

    def wrong(self, problem, max_steps, snapshot_steps):
        right(self, problem, max_steps, snapshot_steps)
        self.steps = torch.full((problem.runs,), max_steps)

    monkeypatch.setattr(training._Ledger, "__init__", wrong)
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError)):
        run_elsewhere("drawn", "gd")


# Extremes


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("changes", [
    {"n_tokens": 1}, {"n_tokens": 2}, {"n_samples": 1}, {"n_test": 1}, {"d_h": 1}, {"d": 3}, {"sigma_h": 0},
    {"sigma_v": 0}, {"n_tokens": 1, "n_samples": 1, "n_test": 1, "d": 3, "d_h": 1, "sigma_h": 0, "sigma_v": 0},
    {"project": False}, {"d": 10, "n_samples": 4}, {"d": 11, "n_samples": 4}, {"d_h": 20}, {"d_h": 21}], ids=str)
def test_small_sizes(engine, changes):
    """Finite observables; only those of xi_2 are missing at M = 1."""
    law = dataclasses.replace(LAW, **{k: v for k, v in changes.items() if k in ("n_tokens", "d", "project")})
    init = dataclasses.replace(SETTING.init, **{k: v for k, v in changes.items() if k in ("sigma_h", "sigma_v")})
    rest = {k: v for k, v in changes.items() if k in ("n_samples", "n_test", "d_h")}
    table = simulate(dataclasses.replace(SETTING, law=law, init=init, max_steps=5, **rest), [0, 1], engine)
    missing = {"attention_xi2", "v_xi2"} if law.n_tokens == 1 else set()
    assert set(table.columns[table.isna().any()]) == missing
    assert np.isfinite(table.drop(columns=list(missing)).astype(float)).all().all()


@pytest.mark.parametrize("method", ["gd", "flow"])
def test_the_largest_dimensions(method):
    """d = d_h = 10^21: token norms are those of the law, and training reaches its target."""
    d = d_h = 1e21
    law = SignalNoise(n_tokens=2, d=d, signal_norm=4, sigma_p=1 / math.sqrt(d), sigma_p_tilde=2 / math.sqrt(d))
    init = GaussianInit(sigma_h=0.1 / d_h**0.25, sigma_v=0.01)
    setting = dataclasses.replace(SETTING, law=law, d_h=d_h, max_steps=5000, init=init)
    problem = build(setting, "drawn", [0])
    norms = problem.train.cross[0].diagonal()
    assert norms[1::2].tolist() == pytest.approx([4] * 4, rel=1e-9)
    assert norms[0::2].tolist() == pytest.approx([16] * 4)
    keys = problem.train.start.keys[0, 0::2].square().sum(-1) / (16 * setting.init.sigma_h**2 * d_h)
    assert keys.tolist() == pytest.approx([1] * 4, rel=1e-9)
    assert bool(simulate(setting, [0], method=method).reached[0])


def test_sigma_h_zero_stays_zero():
    """Queries and keys that are all zero are a fixed point: attention stays uniform, values learn."""
    setting = dataclasses.replace(SETTING, init=GaussianInit(sigma_h=0, sigma_v=0.1))
    for engine in ENGINES:
        for method in ("gd", "flow"):
            table = simulate(setting, [0], engine, method)
            assert table.attention_signal[0] == pytest.approx(1 / 3, rel=1e-12)
            assert bool(table.reached[0])


# Requests


@pytest.mark.parametrize(("change", "message"), [
    ({"engine": "fast"}, "no engine 'fast'; choose one of"), ({"method": "sgd"}, "no method 'sgd'"),
    ({"seeds": []}, "no seeds"), ({"engine": "full", "method": "flow"}, "the full engine has no flow"),
    ({"seeds": [-1]}, "seed = -1"),
    ({"setting": dataclasses.replace(SETTING, init=TorchInit())}, "the direct draw needs Gaussian weights"),
    ({"setting": dataclasses.replace(SETTING, law=dataclasses.replace(LAW, d=1e16)), "engine": "reduced"},
     "--engine drawn")])
def test_impossible_requests(change, message):
    with pytest.raises(UserError, match=message):
        simulate(**({"setting": SETTING, "seeds": [0]} | change))


@pytest.mark.parametrize("wrong", [{"n_samples": 0}, {"d_h": 0}, {"eta": 0}, {"epsilon": math.nan}, {"n_test": 0},
                                   {"n_test": 10**7}, {"max_steps": 0}, {"d_v": 0}])
def test_impossible_settings(wrong):
    with pytest.raises(UserError, match="is not possible"):
        dataclasses.replace(SETTING, **wrong)


def test_a_trajectory_starts_at_the_start_and_ends_at_the_end():
    """Its last rows are the rows of `simulate`; t = 0 is the initial network; losses of flow fall."""
    way, end = trajectory(SETTING, [0, 4], snapshots=8), simulate(SETTING, [0, 4])
    last = way.groupby("seed").last()
    for name in ("train_loss", "test_loss", "v_xi2", "time"):
        assert last[name].tolist() == pytest.approx(end[name].tolist(), rel=1e-10), name
    assert last.t.tolist() == end.steps.tolist()
    assert way.groupby("seed").t.first().tolist() == [0, 0]
    assert not way.duplicated(["seed", "t"]).any()
    flow = trajectory(SETTING, [0], method="flow", snapshots=8)
    assert (flow.train_loss.diff()[1:] < 0).all()
    assert (flow.time.diff()[1:] > 0).all()
