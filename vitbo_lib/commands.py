"""The commands of `vitbo`: options to library calls, answers to text or JSON."""

import argparse
import datetime
import json
import math
import re
import sys
from dataclasses import asdict, fields

import torch
from tqdm import tqdm

from vitbo_lib import __version__
from vitbo_lib.cli import say
from vitbo_lib.data import SignalNoise, positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.initialization import GaussianInit, Initialization, TorchInit
from vitbo_lib.intervals import Interval
from vitbo_lib.seeds import LARGEST_SEED
from vitbo_lib.simulation import ENGINES, METHODS, MOST_SEEDS, Setting, simulate, summarize
from vitbo_lib.theory import (
    LARGEST,
    Constants,
    Parameters,
    condition_4_1,
    condition_report,
    format_condition,
    smallest_configuration,
)

DELTA = 0.01  # failure probability behind the default sigma_h (Condition 4.1 (8))
SIGNAL_NORM = 25.0
DTYPES = {"float32": torch.float32, "float64": torch.float64}
PRINTED = {"steps": "steps", "time": "time eta*t", "train_loss": "training loss", "test_loss": "test loss",
           "test_error": "test error", "attention_signal": "attention on the signal",
           "attention_xi2": "attention on xi_2", "v_signal": "y V of the signal", "v_xi2": "y V of xi_2",
           "seconds": "seconds a run"}


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, and for which -1e-3 is a number, not an option."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._negative_number_matcher = re.compile(r"^-(\d|\.\d|inf|nan)")

    def error(self, message: str):
        raise UserError(f"{message}; see {self.prog} --help")


def _number(text: str) -> float:
    """A finite number, also as 1e16."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def _size(text: str) -> int:
    """A whole number, also as 1e16."""
    value = _number(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text) if text.lstrip("+-").isdigit() else int(value)


# ------------------------------------------------------------------------------------------------------------ simulate

def _add_sizes(parser: argparse.ArgumentParser, defaults: dict) -> None:
    """Options that `simulate` and `condition` share; without a default nothing is assumed."""
    largest = "1e21" if defaults else f"{LARGEST:g}"
    for name, kind, text in (("N", _size, "training samples"), ("M", _size, "tokens of a sample"),
                             ("d", _size, f"dimension of a token, 3 to {largest}"),
                             ("d-h", _size, "dimension of queries and keys"),
                             ("sigma-p", _number, "standard deviation of weak noise"),
                             ("sigma-p-tilde", _number, "standard deviation of the strong noise xi_2")):
        default = {"default": defaults[name], "help": f"{text} ({defaults[name]:g})"} if defaults else {"help": text}
        parser.add_argument(f"--{name}", type=kind, metavar="X", **default)
    signal, norm = parser.add_mutually_exclusive_group(), f" ({SIGNAL_NORM:g})" if defaults else ""
    signal.add_argument("--signal-norm", type=_number, metavar="X", help=f"norm of the signals mu_+ and mu_-{norm}")
    signal.add_argument("--snr", type=_number, metavar="X", help="instead: signal_norm / (sigma_p sqrt(d))")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_simulate(commands) -> None:
    parser = commands.add_parser("simulate", help="train on data of your own sizes and observe",
                                 description="Train the transformer of eq. (1) on data of Definition 3.1, one network "
                                             "a seed. Sizes may be written 1e16. Defaults (in brackets): Appendix A, "
                                             "benign.")
    _add_sizes(parser, {"N": 16, "M": 4, "d": 2048, "d-h": 1024, "sigma-p": 0.05, "sigma-p-tilde": 1.0})
    add = parser.add_argument
    add("--d-v", type=_size, metavar="X", help="dimension of values (default: as d_h)")
    add("--init", choices=("gaussian", "torch"), default="gaussian", help="law of the initial weights (gaussian)")
    add("--sigma-h", type=_number, metavar="X", help="Gaussian W_Q, W_K (default: middle of Condition 4.1 (8))")
    add("--sigma-v", type=_number, metavar="X", help="Gaussian W_V (default: cap of Condition 4.1 (7))")
    add("--init-scale", type=_number, metavar="X", help="torch: factor of PyTorch's default (1/16)")
    add("--w-o-norm", type=_number, metavar="X", help="norm of w_O (Gaussian: 1)")
    add("--w-o-scale", type=_number, metavar="X", help="torch: factor of w_O (default: as --init-scale)")
    add("--eta", type=_number, default=0.1, metavar="X", help="learning rate of gradient descent (%(default)s)")
    add("--epsilon", type=_number, default=0.01, metavar="X", help="training loss to stop at (%(default)s)")
    add("--max-steps", type=_size, default=100_000, metavar="X",
        help="steps of descent to stop at, or evaluations of the gradient allowed to flow (%(default)s)")
    add("--project", action=argparse.BooleanOptionalAction, default=True, help="noise orthogonal to the signals (yes)")
    add("--n-test", type=_size, default=1000, metavar="X", help="fresh points (%(default)s)")
    add("--seed", type=_size, default=0, metavar="X", help="first seed (%(default)s)")
    add("--seeds", type=_size, default=8, metavar="X", help="how many seeds (%(default)s)")
    add("--engine", choices=ENGINES, help="default: drawn for Gaussian weights, else reduced")
    add("--method", choices=METHODS, default="gd", help="gradient descent or its flow (gd)")
    add("--dtype", choices=tuple(DTYPES), default="float64", help="numbers used in training (%(default)s)")
    add("--device", default="cpu", metavar="NAME", help="device used in training (%(default)s)")
    parser.set_defaults(run=_simulate)


def _signal_norm(args) -> float | None:
    """What --signal-norm says, or --snr with --sigma-p and --d; None where nothing was said."""
    if args.snr is None:
        return args.signal_norm
    snr = positive("snr", args.snr)
    if args.sigma_p is None or args.d is None:
        raise UserError("--snr alone fixes no signal norm; give --sigma-p and --d with it")
    norm = snr * positive("sigma_p", args.sigma_p) * math.sqrt(whole("d", args.d, 3, LARGEST))
    if not 1 / LARGEST <= norm <= LARGEST:
        raise UserError(f"--snr {snr:g} means a signal norm of {norm:g}; give an SNR for which it is between "
                        f"{1 / LARGEST:g} and {LARGEST:g}")
    return norm


def _law(args) -> SignalNoise:
    if args.d is not None and args.d < 3:
        raise UserError(f"d = {args.d} is not possible; two signals and noise need d >= 3")
    signal_norm = _signal_norm(args)
    signal_norm = SIGNAL_NORM if signal_norm is None else signal_norm
    return SignalNoise(n_tokens=args.M, d=args.d, signal_norm=signal_norm, sigma_p=args.sigma_p,
                       sigma_p_tilde=args.sigma_p_tilde, project=args.project)


def _initialization(args, law: SignalNoise) -> Initialization:
    """The law of the initial weights; an option of the other law is a mistake, not ignored."""
    others = ("init_scale", "w_o_scale") if args.init == "gaussian" else ("sigma_h", "sigma_v")
    for name in others:
        if getattr(args, name) is not None:
            option = "--" + name.replace("_", "-")
            raise UserError(f"{option} does not apply to --init {args.init}; leave it out, or change --init")
    if args.w_o_scale is not None and args.w_o_norm is not None:
        raise UserError("--w-o-scale and --w-o-norm both fix the size of w_O; give one of them")
    if args.init == "torch":
        scale = 1 / 16 if args.init_scale is None else args.init_scale
        return TorchInit(scale=scale, w_o_scale=args.w_o_scale, w_o_norm=args.w_o_norm)
    w_o_norm = 1.0 if args.w_o_norm is None else args.w_o_norm
    items = condition_4_1(Parameters(N=args.N, M=max(args.M, 2), d=law.d, d_h=args.d_h, signal_norm=law.signal_norm,
                                     sigma_p=law.sigma_p, w_o_norm=w_o_norm, delta=DELTA))
    low, high = items[7].needed
    sigma_h = (low * high) ** 0.25 if args.sigma_h is None else args.sigma_h
    sigma_v = items[6].needed if args.sigma_v is None else args.sigma_v
    return GaussianInit(sigma_h=sigma_h, sigma_v=sigma_v, w_o_norm=w_o_norm)


def _simulate(args) -> None:
    whole("seeds", args.seeds, 1, MOST_SEEDS)
    if not 0 <= args.seed <= LARGEST_SEED - args.seeds + 1:
        raise UserError(f"--seed {args.seed} is not possible; give a whole number from 0, all seeds below 2^63")
    law = _law(args)
    setting = Setting(law=law, n_samples=args.N, d_h=args.d_h, init=_initialization(args, law), d_v=args.d_v,
                      eta=args.eta, epsilon=args.epsilon, max_steps=args.max_steps, n_test=args.n_test)
    engine = args.engine or ("drawn" if args.init == "gaussian" else "reduced")
    try:
        torch.ones(1, dtype=DTYPES[args.dtype], device=args.device).item()
    except (RuntimeError, AssertionError, TypeError):
        raise UserError(f"device {args.device!r} cannot be used here; try --device cpu") from None
    seeds, hidden = range(args.seed, args.seed + args.seeds), sys.stderr is None or not sys.stderr.isatty()
    with tqdm(total=args.seeds, unit="run", leave=False, disable=hidden, file=sys.stderr) as bar:
        table = simulate(setting, seeds, engine, args.method, DTYPES[args.dtype], args.device, bar.update)
    summary, short = summarize(table), int((~table["reached"]).sum())
    parameters = {"engine": engine, "method": args.method, "init": args.init, "dtype": args.dtype,
                  "device": args.device, "seeds": list(seeds), **_flat(setting)}
    if args.json:
        _print_json({"parameters": parameters} | {name: _entry(table[name], part) for name, part in summary.items()})
    else:
        _print_summary(parameters, summary, law, args.N)
    if short:
        reason = (f"in {args.max_steps} steps; raise --max-steps, --eta or --epsilon" if args.method == "gd" else
                  f"as closely as asked; {args.dtype} is too coarse for these sizes")
        say(f"warning: {short} of {args.seeds} runs did not come down to epsilon = {args.epsilon:g} {reason}")


def _flat(setting: Setting) -> dict:
    """The numbers of a setting by name."""
    law, init = asdict(setting.law), asdict(setting.init)
    rest = {entry.name: getattr(setting, entry.name) for entry in fields(setting) if entry.name not in ("law", "init")}
    return {"N": rest.pop("n_samples"), "M": law.pop("n_tokens")} | law | rest | init


def _entry(values, interval: Interval | None) -> dict | None:
    """An observable in the JSON contract; NaN, which JSON has not, becomes null."""
    if interval is None:
        return None
    clean = [None if math.isnan(value) else value for value in values.tolist()]
    ends = {name: getattr(interval, name) for name in ("mean", "low", "high")}
    return {name: None if math.isnan(value) else value for name, value in ends.items()} | {"values": clean}


def _json(answer: dict) -> str:
    """One JSON object; a number that overflowed, which JSON has not, is an OverflowError."""
    try:
        return json.dumps(answer, indent=2, allow_nan=False)
    except ValueError:
        raise OverflowError from None


def _print_json(answer: dict) -> None:
    print(_json(answer))


def _print_summary(parameters: dict, summary: dict, law: SignalNoise, n_samples: int) -> None:
    runs = len(parameters["seeds"])
    print(f"{runs} run{'s' if runs > 1 else ''} of {parameters['engine']} {parameters['method']}: SNR {law.snr:.4g}, "
          f"N SNR^2 {n_samples * law.snr**2:.4g}, C_p {law.c_p:.4g}")
    print(f"{'':26}{'mean':>12}   95 % interval over seeds")
    for name, interval in summary.items():
        if interval is None:
            continue
        ends = "" if math.isnan(interval.low) else f"   [{interval.low:.4g}, {interval.high:.4g}]"
        print(f"{PRINTED[name]:26}{interval.mean:>12.4g}{ends}")


# ----------------------------------------------------------------------------------------------------------- condition

def _add_condition(commands) -> None:
    parser = commands.add_parser("condition", help="Condition 4.1 for your own sizes, item by item",
                                 description="What each item of Condition 4.1 needs, what is given, whether it is met. "
                                             "What you leave out is not assumed.")
    _add_sizes(parser, {})
    for name, text in (("w-o-norm", "norm of w_O"), ("eta", "learning rate"), ("sigma-v", "initial entries of W_V"),
                       ("sigma-h", "initial entries of W_Q, W_K"), ("epsilon", "target training loss"),
                       ("delta", "failure probability")):
        parser.add_argument(f"--{name}", type=_number, help=text, metavar="X")
    parser.add_argument("--constant", action="append", default=[], metavar="NAME=X",
                        help="set what order notation hides; NAME is one of "
                             f"{', '.join(entry.name for entry in fields(Constants))}")
    parser.add_argument("--smallest", action="store_true",
                        help="choose all else: the smallest d_h and d for --N --M --snr --epsilon --delta")
    parser.set_defaults(run=_condition)


def _constants(entries: list[str]) -> Constants:
    known, chosen = [entry.name for entry in fields(Constants)], {}
    for entry in entries:
        name, separator, value = entry.partition("=")
        if not separator or name not in known:
            raise UserError(f"--constant {entry} is not NAME=X with a known name; names are {', '.join(known)}")
        try:
            chosen[name] = _number(value)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"--constant {entry}: {error}; give a number") from None
    return Constants(**chosen)


def _condition(args) -> None:
    constants = _constants(args.constant)
    names = [entry.name for entry in fields(Parameters)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.smallest:
        p = _smallest(args, given, constants)
    else:
        p = Parameters(**given | {"signal_norm": _signal_norm(args)})
    report = condition_report(p, constants)
    text = _json(report)  # also where it is not asked for: bounds that overflowed are no answer
    print(text if args.json else format_condition(report))


def _smallest(args, given: dict, constants: Constants) -> Parameters:
    needed = {"N": args.N, "M": args.M, "snr": args.snr, "epsilon": args.epsilon}
    missing = [f"--{name}" for name, value in needed.items() if value is None]
    extra = sorted(f"--{name.replace('_', '-')}" for name in set(given) - {"N", "M", "epsilon", "delta", "signal_norm"})
    if missing or extra:
        raise UserError(f"--smallest chooses all but --N --M --snr --epsilon --delta; "
                        f"{'missing: ' + ' '.join(missing) if missing else 'leave out: ' + ' '.join(extra)}")
    return smallest_configuration(**needed, delta=DELTA if args.delta is None else args.delta, constants=constants)


# ------------------------------------------------------------------------------------------------ figures, results, ...

def _add_figures(commands) -> None:
    parser = commands.add_parser("figures", help="draw the book's figures into files",
                                 description="Draw the figures of the book from stored tables and small runs.")
    parser.add_argument("--out", default="figures", metavar="DIR", help="folder to write to (%(default)s)")
    parser.add_argument("--only", action="append", metavar="NAME", help="this figure only (may be repeated)")
    parser.add_argument("--format", choices=("svg", "pdf", "png"), default="svg", help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object: names and files")
    parser.set_defaults(run=_figures)


def _figures(args) -> None:
    from vitbo_lib.figures.catalogue import draw_all  # matplotlib is slow to load; nothing else needs it

    written = draw_all(args.out, args.only, args.format, progress=None if args.json else print)
    if args.json:
        _print_json({"parameters": {"out": args.out, "format": args.format},
                     "figures": {name: str(path) for name, path in written.items()}})


def _add_results(commands) -> None:
    from vitbo_lib.results import PROFILES, TABLES

    parser = commands.add_parser("results", help="compute the stored tables, or continue them",
                                 description="Compute the stored tables of the book. Killed runs are continued: "
                                             "finished cells are not computed again.")
    parser.add_argument("--profile", choices=PROFILES, default="lab",
                        help="sizes: smoke, lab (the stored ones; the default), paper")
    parser.add_argument("--only", action="append", metavar="NAME",
                        help=f"this table only (may be repeated): {', '.join(TABLES)}")
    parser.add_argument("--out", metavar="DIR", help="folder of the tables (default: results/ beside the library; for "
                                                     "another profile results-PROFILE/)")
    parser.add_argument("--workers", type=_size, default=2, metavar="X", help="processes (%(default)s)")
    parser.set_defaults(run=_results)


def _results(args) -> None:
    from vitbo_lib.results import compute_tables

    compute_tables(args.profile, args.only, args.out, args.workers, say=print)


def _add_claims(commands) -> None:
    parser = commands.add_parser("claims", help="the record: every claim with its evidence and verdict",
                                 description="Check every claim anew, from live runs and from the stored tables. Exit "
                                             "code 1 where a verdict, or a row, is not the one on record.")
    parser.add_argument("--only", action="append", metavar="ID", help="this claim only (may be repeated)")
    parser.add_argument("--all", action="store_true",
                        help="also compute random rows of every stored table anew and compare")
    parser.add_argument("--minutes", type=_number, default=40.0, metavar="X",
                        help="with --all: time for these rows, shared by the tables (%(default)g)")
    parser.add_argument("--seed", type=_size, metavar="X", help="with --all: which rows (default: today's date)")
    parser.add_argument("--workers", type=_size, default=2, metavar="X", help="with --all: processes (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_claims)


def _bar(total: int, unit: str) -> tqdm:
    """Progress on a terminal, nothing elsewhere."""
    hidden = sys.stderr is None or not sys.stderr.isatty()
    return tqdm(total=total, unit=unit, leave=False, disable=hidden, file=sys.stderr)


def _claims(args) -> None:
    from vitbo_lib import claims

    minutes, workers = positive("minutes", args.minutes), whole("workers", args.workers, 1, 1000)
    if args.all and args.only:
        raise UserError("--all and --only contradict each other; give one of them")
    if args.seed is not None and not 0 <= args.seed <= LARGEST_SEED:
        raise UserError(f"--seed {args.seed} is not possible; give a whole number from 0, below 2^63")
    with _bar(len(args.only or claims.all_claims()), "claim") as bar:
        records = claims.check(args.only, bar.update)
    rows = _recheck(args.seed, minutes, workers) if args.all else []
    if args.json:
        _print_json(claims.as_json(records) | ({"stored": [asdict(one) | {"agrees": one.agrees} for one in rows]}
                                               if args.all else {}))
    else:
        print("\n".join([claims.as_text(records), *(_row_line(one) for one in rows)]))
    off = [r.claim.id for r in records if r.evidence.verdict != r.claim.expected] + [
        one.name for one in rows if not one.agrees]
    if off:
        say(f"not as on record: {', '.join(off)}")
        raise SystemExit(1)


def _recheck(seed: int | None, minutes: float, workers: int) -> list:
    from vitbo_lib.recheck import recheck_all
    from vitbo_lib.results import TABLES

    seed = int(f"{datetime.date.today():%Y%m%d}") if seed is None else seed
    found = []
    with _bar(len(TABLES), "table") as bar:
        for one in recheck_all(seed, None, 60 * minutes / len(TABLES), workers):
            found.append(one)
            bar.update()
    return found


def _row_line(one) -> str:
    verdict = "agree" if one.agrees else "DIFFER"
    more = f"\n    {one.differing[0]}" if one.differing else ""
    return (f"{one.name:24} {one.compared} of {one.rows} stored rows, computed anew, {verdict} within "
            f"{one.tolerance:g} ({one.seconds:.0f} s){more}")


# ---------------------------------------------------------------------------------------------------------------- whole

def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(prog="vitbo", description="An executable companion to 'Unveil Benign Overfitting for Transformer "
                                               "in Vision' (Jiang et al. 2024).")
    parser.add_argument("--version", action="version", version=f"vitbo {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_simulate, _add_condition, _add_figures, _add_results, _add_claims):
        add(commands)
    return parser
