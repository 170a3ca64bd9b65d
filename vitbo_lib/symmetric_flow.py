"""The symmetric limit: gradient flow of eq. (1) when d and d_h go to infinity, closed on a few dozen scalars.

In the limit different tokens are orthogonal, and so are the initial queries and keys. With initial logits and values
put to 0, norms at their means and even classes, the samples of a class stay alike, the weak tokens of a sample stay
alike, and the classes are mirror images that never meet (they share no token). So the matrices

    P = Q K^T (logits),   A = Q Q^T,   C = K K^T     of the tokens of one class

keep a pattern: an entry depends only on the two tokens' types (mu, xi_2, weak) and on whether they belong to one
sample, and to one place in it. Such matrices are block diagonal in a basis of three kinds of vectors: sums over the
class (mu, all xi_2, all weak tokens, each sum divided by its length), differences between samples (of xi_2, of the
sum of weak tokens), and differences between the weak tokens of a sample: blocks of 3, 2 and 1 rows. With D the
squared norms of the tokens and B = -(derivative of the loss at the logits), gradient flow is, in every block,

    dP/dt = D B C + A B D,   dA/dt = D B P^T + P B^T D,   dC/dt = D B^T P + P^T B D,

and N is only a number in it. At t = 0, P = 0 and A = C = gain D with gain = sigma_h^2 d_h.
"""

import math
from dataclasses import dataclass

import numpy as np

from vitbo_lib.data import positive, whole
from vitbo_lib.errors import UserError
from vitbo_lib.flow import checked_tolerance
from vitbo_lib.side_by_side import integrate

TOLERANCE = 1e-6  # relative, of the integrator
MOST_SAMPLES = 10**15
LONGEST = 1e24  # in units of the first change of attention; flow that needs more time is given up
MU, XI2, WEAK, OTHER = range(4)  # keys as a query sees them; OTHER: the other weak tokens of a weak query's sample
PATIENCE = 1e4


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A problem in the symmetric limit: `n_samples` N (even), `tokens` M, `ratio` r = N SNR^2 / C_p^2, `gain`.

    ||mu|| = 1 and ||w_O|| = 1, so that sigma_p_tilde^2 d = N / r and sigma_p^2 d = N / (r C_p^2); `gain` is
    sigma_h^2 d_h, `math.inf` for the limit in which attention is decided while values are still 0 (then -l' = 1/2, and
    `Flow.to_decision` is the way to run it). `c_p_squared` is that of item (10), 25 M, unless given.

    >>> Limit(n_samples=64, tokens=2, ratio=2.0, gain=100.0).energies.round(3)
    array([ 1.  , 32.  ,  0.64])
    """

    n_samples: int
    tokens: int
    ratio: float
    gain: float = math.inf
    c_p_squared: float | None = None

    def __post_init__(self):
        n = whole("N", self.n_samples, 4, MOST_SAMPLES)
        if n % 2:
            raise UserError(f"N = {n} is odd; the symmetric limit has classes of N / 2, give an even N")
        gain = self.gain if self.gain == math.inf else positive("gain", self.gain)
        m = whole("M", self.tokens, 2, 1000)
        c_p_squared = 25.0 * m if self.c_p_squared is None else positive("C_p^2", self.c_p_squared)
        for name, value in (("n_samples", n), ("tokens", m), ("ratio", positive("ratio", self.ratio)), ("gain", gain),
                            ("c_p_squared", c_p_squared)):
            object.__setattr__(self, name, value)

    @property
    def weak(self) -> int:
        """M - 2, the weak tokens of a sample."""
        return self.tokens - 2

    @property
    def of_class(self) -> float:
        """N / 2, the samples of a class."""
        return self.n_samples / 2

    @property
    def energies(self) -> np.ndarray:
        """||x||^2 of mu, xi_2 and a weak token (3)."""
        strong = self.n_samples / self.ratio
        return np.array([1.0, strong, strong / self.c_p_squared])

    @property
    def blocks(self) -> tuple[int, ...]:
        """Rows of the blocks: sums over the class, differences of samples, differences inside a sample."""
        return ((2, 1), (3, 2), (3, 2, 1))[min(self.weak, 2)]

    @property
    def scalars(self) -> int:
        """How many numbers the flow closes on: values by type, and P, A, C in every block (A, C being symmetric).

        >>> [Limit(n_samples=8, tokens=m, ratio=2.0).scalars for m in (2, 3, 4, 8)]
        [15, 34, 37, 37]
        """
        return min(self.tokens, 3) + sum(n * n + n * (n + 1) for n in self.blocks)


@dataclass(frozen=True)
class State:
    """The network at one time: scalarized values y V by type (3), logits and attention of queries (3) on keys (3 + 1).

    Rows: query mu, xi_2, weak; columns: key mu, xi_2, weak (for a weak query: itself), the other weak tokens.
    """

    limit: Limit
    time: float
    values: np.ndarray
    logits: np.ndarray
    attention: np.ndarray

    @property
    def margin(self) -> float:
        """y f of a training sample."""
        read = (_counts(self.limit) * self.attention) @ _by_key(self.values)
        return float(_queries(self.limit) @ read) / self.limit.tokens

    @property
    def benign(self) -> bool:
        """Whether the signal's value is ahead of that of xi_2."""
        return bool(self.values[MU] > self.values[XI2])

    @property
    def train_loss(self) -> float:
        """L_S."""
        return float(np.logaddexp(0, -self.margin))

    @property
    def attention_signal(self) -> float:
        """Attention on the signal, mean over the M queries of a training sample."""
        return float(_queries(self.limit) @ self.attention[:, MU] / self.limit.tokens)

    @property
    def fresh_attention(self) -> float:
        """Attention of a fresh point's mu on mu: its logit on itself is the trained one, on fresh noise it is 0."""
        return 1 / (1 + (self.limit.tokens - 1) * math.exp(-self.logits[MU, MU]))

    @property
    def test_loss(self) -> float:
        """Loss on every fresh point: mu looks with `fresh_attention`, fresh noise looks evenly and has value 0."""
        m = self.limit.tokens
        return float(np.logaddexp(0, -self.values[MU] * (self.fresh_attention + (m - 1) / m) / m))


def _queries(limit: Limit) -> np.ndarray:
    """How many queries of each type a sample has (3)."""
    return np.array([1.0, 1.0, limit.weak])


def _counts(limit: Limit) -> np.ndarray:
    """How many keys of each column a query of each row sees (3 4)."""
    m = limit.weak
    return np.array([[1.0, 1, m, 0], [1, 1, m, 0], [1, 1, 1, m - 1] if m else [1, 1, 0, 0]])


def _attend(counts: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Attention on one key of each column (... 3 4), 0 where there is none; a row times `counts` adds up to 1."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True)) * (counts > 0)
    return weights / (counts * weights).sum(axis=-1, keepdims=True)


def _by_key(values: np.ndarray) -> np.ndarray:
    """Values of the keys of the four columns (... 4)."""
    return values[..., [MU, XI2, WEAK, WEAK]]


class Flow:
    """The closed systems of several `Limit`s of one M, side by side (R of them), all with finite gain or none.

    A vector for each: values first, then for every block R, and where the gain is finite A' and C': with hats for
    tokens divided by their norm, P = D^(1/2) R D^(1/2), A = gain D^(1/2) (1 + A') D^(1/2), C likewise. `UserError`
    where the limits differ in M, or only some of the gains are infinite.
    """

    def __init__(self, *limits: Limit):
        if len({(limit.tokens, limit.gain == math.inf) for limit in limits}) != 1:
            raise UserError("limits side by side need one M, and gains all finite or all infinite; ask one by one")
        self.limits, first = limits, limits[0]
        self.tokens, self.weak, self.blocks = first.tokens, first.weak, first.blocks
        self.counts, self.queries, self.finite = _counts(first), _queries(first), first.gain != math.inf
        self.matrices_of_a_block = 3 if self.finite else 1
        n, m = np.array([limit.of_class for limit in limits]), max(self.weak, 1)
        energies = np.stack([limit.energies for limit in limits])
        kinds = self.blocks[0]
        self.of_class, self.root = n[:, None, None], math.sqrt(m)
        self.lengths = np.stack([np.ones_like(n), np.sqrt(n), np.sqrt(n * m)], axis=1)[:, :kinds]  # of class sums
        norms = np.sqrt(energies)[:, :kinds]
        self.norms = [norms[:, -rows:, None] * norms[:, None, -rows:] for rows in self.blocks]
        shares = np.stack([n, np.ones_like(n), np.full_like(n, self.weak > 0)], axis=1)
        self.value_rates = energies * shares / (2 * n[:, None] * self.tokens)
        self.logit_rate = (1 / (2 * n * self.tokens))[:, None, None]
        self.gain = np.array([limit.gain if self.finite else 1.0 for limit in limits])
        self.scale_of_values = 1 / np.sqrt(self.gain * energies[:, XI2])
        self.unit = self.scale_of_values / self.value_rates[:, XI2]  # time at which attention of xi_2 begins to change

    # ---- packing

    def start(self) -> np.ndarray:
        """The vectors at t = 0: nothing but zeros."""
        return np.zeros((len(self.limits), 3 + sum(n * n for n in self.blocks) * self.matrices_of_a_block))

    def split(self, vectors: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Values (R 3) and the matrices (R n n), block by block: R, or R, A', C'."""
        parts, at = [], 3
        for n in self.blocks:
            for _ in range(self.matrices_of_a_block):
                parts.append(vectors[:, at : at + n * n].reshape(-1, n, n))
                at += n * n
        return vectors[:, :3], parts

    def allowed_errors(self, tolerance: float) -> np.ndarray:
        """Absolute error allowed in each entry: values by their scale, logits by 1."""
        sizes = [self.scale_of_values[:, None] * np.ones(3)]
        for norms in self.norms:
            flat = norms.reshape(len(norms), -1)
            sizes += [1 / flat, *[np.ones_like(flat)] * (self.matrices_of_a_block - 1)]
        return 0.1 * tolerance * np.concatenate(sizes, axis=1)

    # ---- between types and blocks

    def logits(self, rows: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
        """Logits inside a sample (3 4 each) from R of the blocks."""
        p = [r * norms[rows] for r, norms in zip(matrices[:: self.matrices_of_a_block], self.norms)]
        found, m, kinds, lengths = np.zeros((len(rows), 3, 4)), self.weak, self.blocks[0], self.lengths[rows]
        found[:, MU, :kinds] = p[0][:, 0] / lengths
        found[:, :kinds, MU] = p[0][:, :, 0] / lengths
        inside = p[1] + (p[0][:, 1:, 1:] - p[1]) / self.of_class[rows]  # of xi_2 and the sum of a sample's weak tokens
        found[:, XI2, XI2] = inside[:, 0, 0]
        if m:
            found[:, XI2, WEAK] = inside[:, 0, 1] / self.root
            found[:, WEAK, XI2] = inside[:, 1, 0] / self.root
            apart = p[2][:, 0, 0] if m > 1 else 0.0
            found[:, WEAK, OTHER] = (inside[:, 1, 1] - apart) / m
            found[:, WEAK, WEAK] = found[:, WEAK, OTHER] + apart
        return found

    def forces(self, rows: np.ndarray, beta: np.ndarray) -> list[np.ndarray]:
        """B of every block from -(derivative of the loss at a logit), `beta` (3 4 each)."""
        m, root, kinds, lengths = self.weak, self.root, self.blocks[0], self.lengths[rows]
        sample = beta[:, XI2:kinds, XI2:kinds].copy()
        if m:
            sample[:, 0, 1] *= root
            sample[:, 1, 0] *= root
            sample[:, 1, 1] += (m - 1) * beta[:, WEAK, OTHER]
        whole_class = np.empty((len(rows), kinds, kinds))
        whole_class[:, 0], whole_class[:, :, 0] = lengths * beta[:, MU, :kinds], lengths * beta[:, :kinds, MU]
        whole_class[:, 0, 0], whole_class[:, 1:, 1:] = self.of_class[rows, 0, 0] * beta[:, MU, MU], sample
        apart = (beta[:, WEAK, WEAK] - beta[:, WEAK, OTHER]).reshape(-1, 1, 1)
        return [whole_class, sample, *([apart] if m > 1 else [])]

    # ---- the flow

    def velocity(self, rows: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """d/dt of some of the vectors; with infinite gain, d/d(gain^(1/2) t) of (gain^(1/2) V, R), and -l' = 1/2."""
        values, matrices = self.split(vectors)
        phi = _attend(self.counts, self.logits(rows, matrices))
        by_key = _by_key(values)
        read = (self.counts * phi * by_key[:, None]).sum(-1)
        slope = 0.5 * np.ones(len(rows))
        if self.finite:
            slope = 1 / (1 + np.exp(np.minimum(read @ self.queries / self.tokens, 700.0)))
        beta = slope[:, None, None] * self.logit_rate[rows] * phi * (by_key[:, None] - read[:, :, None])
        seen = self.queries @ phi[:, :, :3]  # attention that a key of each type gets in its sample
        seen[:, WEAK] += (self.weak - 1) * (phi[:, WEAK, OTHER] - phi[:, WEAK, WEAK])  # one weak query is that key
        moved = [slope[:, None] * self.value_rates[rows] * seen]
        for i, (force, norms) in enumerate(zip(self.forces(rows, beta), self.norms)):
            moved += self._moved(force * norms[rows], matrices[self.matrices_of_a_block * i :], self.gain[rows])
        return np.concatenate(moved, axis=1)

    def _moved(self, b: np.ndarray, matrices: list[np.ndarray], gain: np.ndarray) -> list[np.ndarray]:
        """Velocities of R (and A', C') of one block."""
        size = (len(b), -1)
        if not self.finite:
            return [2 * b.reshape(size)]
        (r, a, c), gain = matrices[:3], gain[:, None, None]
        d_a, d_c = b @ r.mT / gain, b.mT @ r / gain
        return [(gain * (2 * b + b @ c + a @ b)).reshape(size), (d_a + d_a.mT).reshape(size),
                (d_c + d_c.mT).reshape(size)]

    def seen(self, rows: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values (3), logits and attention (3 4) of some of the vectors."""
        values, matrices = self.split(vectors)
        logits = self.logits(rows, matrices)
        return values, logits, _attend(self.counts, logits)

    def states(self, times: np.ndarray, vectors: np.ndarray) -> list[State]:
        """What all the vectors say (R)."""
        found = zip(self.limits, times, *self.seen(np.arange(len(self.limits)), vectors))
        return [State(limit, float(t), *(part.copy() for part in parts)) for limit, t, *parts in found]

    def to_loss(self, epsilon: float, tolerance: float = TOLERANCE, way: list | None = None) -> list[State]:
        """The states at training loss `epsilon` (R); finite gain only. `way` collects all states on the way."""
        epsilon, tolerance = positive("epsilon", epsilon), checked_tolerance(tolerance)
        if not self.finite:
            raise UserError("with infinite gain the loss never moves; give a finite gain, or use to_decision")
        if epsilon >= math.log(2):
            raise UserError(f"epsilon = {epsilon} is above log 2, where training starts; give a smaller one")

        def to_target(rows, vectors):
            values, _, phi = self.seen(rows, vectors)
            margin = (self.counts * phi * _by_key(values)[:, None]).sum(-1) @ self.queries / self.tokens
            return np.log(np.logaddexp(0, -margin) / epsilon)

        watch = None if way is None else (lambda times, vectors: way.extend(self.states(times, vectors)))
        times, vectors, met = self._integrate(to_target, LONGEST * self.unit, tolerance, watch=watch)
        if not met.all():
            raise UserError(f"the flow does not reach epsilon = {epsilon}; give a larger one")
        return self.states(times, vectors)

    def to_decision(self, sure: float = 0.99, tolerance: float = TOLERANCE, way: list | None = None) -> list[State]:
        """The states in which every query has at least `sure` of its attention on the signal, or every one on noise.

        Query types may disagree for long; after `PATIENCE` times the time in which attention of mu moves, the state is
        that of that time, and the larger of the values of mu and xi_2 says where all would go in the end.
        """
        tolerance = checked_tolerance(tolerance)
        if not 0.5 < positive("sure", sure) <= 1:
            raise UserError(f"sure = {sure} is not possible; give a share of attention above 0.5, at most 1")

        def undecided(rows, vectors):
            on_signal = self.seen(rows, vectors)[2][:, : self.blocks[0], MU]
            return sure - np.maximum(on_signal.min(axis=1), 1 - on_signal.max(axis=1))

        longest = PATIENCE * self.unit * np.sqrt(2 * self.of_class[:, 0, 0])
        watch = None if way is None else (lambda times, vectors: way.extend(self.states(times, vectors)))
        return self.states(*self._integrate(undecided, longest, tolerance, overshoot=math.inf, watch=watch)[:2])

    def _integrate(self, event, longest: np.ndarray, tolerance: float, **options):
        return integrate(self.velocity, event, self.start(), 1e-3 * self.unit, longest, tolerance,
                         self.allowed_errors(tolerance), **options)
