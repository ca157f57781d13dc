"""Which faults explain best that some runs were slow and others fast.

A fault (a node, a path, a rail) slows the runs that it touches, always or at times. Of all sets of faults that set
is wanted which makes the results most likely, while each fault in it pays a price: there are many that it could
have been instead, and with enough of them chance finds one that fits. Two explanations that fit about as well
leave it open.

Noise only slows: a healthy run lies below normal by the absolute value of a normal distribution. One healthy run in
a thousand may be slow for no reason at all, so no single run ever names anybody. Gains and prices are logarithms of
likelihoods (nats).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from hpslurm.core.values import dataclass

Key = TypeVar("Key", bound=Hashable)

ALWAYS = 0.999  # how often a fault that is always there slows a run
AT_TIMES = (0.7, 0.5, 0.3)  # how often others do; in between the likelihood hardly differs
HICCUP = 0.001  # share of healthy runs that are slow by anything
GRAVE = 1 / HICCUP  # as much as a run can say; one that hung or failed says that
AT_TIMES_PRICE = 1.0  # more than for one that is always there
ODDS = 5.5  # so that one search in 250 names a healthy one, whatever the number of those it could name
LEAST_PRICE = 8.0  # more than a single run can weigh
SUSPICION = 1.0  # who gains that much is looked at again
MARGIN = 2.3  # ten times as likely as the next best explanation, or it is open
CLEAR_MARGIN = 6.0  # 400 times as likely: no need to look again
SPREAD = 1.5  # how much more a slow run may say than the fastest one of the same fault, if it is always there
MOST_NAMED, MOST_PASSES = 100, 10  # a cluster with more faults than that has another trouble


@dataclass(frozen=True)
class Noise:
    """``normal``: the rate of a run that nothing slows; ``sigma``: the scatter, as a share of it.

    A run that lacks less than ``least`` is fast, whatever the scatter is.
    """

    normal: float
    sigma: float

    @property
    def least(self) -> float:
        return max(0.05, 1.8 * self.sigma)

    def ratio(self, rate: float) -> float:
        """How many times as likely the rate is in a slow run as in a healthy one. For a run that is not fast.

        How much a fault takes away is not known beforehand: each factor is as likely as any.
        """
        lacks = max(1 - rate / self.normal, self.least)
        slow = 1 / (lacks * -math.log(self.least))
        healthy = math.sqrt(2 / math.pi) / self.sigma * math.exp(-((lacks / self.sigma) ** 2) / 2)
        return min(slow / (healthy + HICCUP), GRAVE)


class Doubtful(Generic[Key]):
    """A run that was not fast. ``touched``: the faults that could slow it; ``rest``: that none of the named does."""

    __slots__ = ("ratio", "rest", "touched")

    def __init__(self, ratio: float, touched: Sequence[Key]) -> None:
        self.ratio = ratio
        self.touched = touched
        self.rest = 1.0


def price(of: int, more: float = 0.0) -> float:
    """What one of so many must gain to be named."""
    return max(LEAST_PRICE, math.log(max(of, 1)) + ODDS + more)


class Explanation(Generic[Key]):
    """The best set of faults. ``fast`` counts the fast runs that a fault touches, ``prices`` says what it must gain."""

    def __init__(
        self,
        runs: Iterable[Doubtful[Key]],
        fast: Callable[[Key], int],
        prices: Callable[[Key], float],
        at_times: bool,
        starts: Sequence[Callable[[Key], bool]] = (),
        suspicion: float = SUSPICION,
    ) -> None:
        self.often = (ALWAYS, *AT_TIMES) if at_times else (ALWAYS,)
        self._fast, self._price, self._suspicion = fast, prices, suspicion
        self._of: dict[Key, list[Doubtful[Key]]] = {}
        self._scores: dict[Key, tuple[float, float]] = {}
        self.named: dict[Key, float] = {}  # and how often it slows a run
        for run in runs:
            for key in run.touched:
                self._of.setdefault(key, []).append(run)
        self._hot = [key for key in self._of if self._most_gain(key) >= suspicion]
        sets = [self._search(start) for start in (lambda key: True, *starts)]
        total, best = max(sets, key=lambda found: found[0])
        for key, often in best.items():
            self._set(key, often)
        close = {key: self._margin(key) for key in best}
        for other_total, other in sets:  # another whole that is about as likely
            instead = next((key for key in other if key not in best), None)
            for key in best:
                if key not in other and total - other_total < close[key][0]:
                    close[key] = total - other_total, instead
        self.open = {key for key, (margin, _) in close.items() if margin < MARGIN}
        self._close = {key: rival for key, (margin, rival) in close.items() if margin < CLEAR_MARGIN}

    def _most_gain(self, key: Key) -> float:
        """A bound that is quick to tell: more than this it cannot gain."""
        gain = sum(math.log(run.ratio) for run in self._of[key] if run.ratio > 1)
        return gain + self._fast(key) * math.log(1 - self.often[-1]) if gain >= self._suspicion else gain

    def gain(self, key: Key) -> float:
        """How much likelier the results are with it, over and above the named ones."""
        return self._best(key)[0] + self._price(key)

    def suspects(self) -> list[Key]:
        """Who could be at fault; and who is named, with the rival, where another explains it nearly as well."""
        suspects = [key for key in self._hot if key not in self.named and self.gain(key) >= self._suspicion]
        for pair in self._close.items():
            suspects += [key for key in pair if key is not None and key not in suspects]
        return suspects

    def _best(self, key: Key) -> tuple[float, float]:
        """The score (gain less price) of a fault that is not named, and how often it would slow a run."""
        if key not in self._scores:
            runs = [(run.ratio, run.rest, run.rest + run.ratio * (1 - run.rest)) for run in self._of[key]]
            fast, log = self._fast(key), math.log
            scores = []
            for often in self.often:
                not_it = 1 - often
                gain = fast * log(not_it) - (AT_TIMES_PRICE if often < ALWAYS else 0.0)
                for ratio, rest, before in runs:
                    left = rest * not_it
                    gain += log((left + ratio * (1 - left)) / before)
                if often == ALWAYS:  # noise only slows, so the fastest run tells how grave it is at most
                    gain = min(gain, len(runs) * (log(min(run[0] for run in runs)) + SPREAD))
                scores.append((gain - self._price(key), often))
            self._scores[key] = max(scores)
        return self._scores[key]

    def _set(self, key: Key, often: float | None) -> None:
        """Name it, or (None) no longer."""
        if often is None:
            del self.named[key]
        else:
            self.named[key] = often
        for run in self._of[key]:
            run.rest = math.prod(1 - self.named[other] for other in run.touched if other in self.named)
            for other in run.touched:
                self._scores.pop(other, None)

    def _search(self, start: Callable[[Key], bool]) -> tuple[float, dict[Key, float]]:
        """The best set that is found when faults of some kinds come first, and how likely it makes the results."""
        self._add([key for key in self._hot if start(key)])
        for _ in range(MOST_PASSES):  # each change makes the whole likelier, so few are enough
            self._add(self._hot)
            if not sum(self._exchange(key) for key in list(self.named)):
                break
        named, total = dict(self.named), self._total()
        for key in named:
            self._set(key, None)
        return total, named

    def _add(self, hot: Sequence[Key]) -> None:
        while len(self.named) < MOST_NAMED:
            left = (key for key in hot if key not in self.named)
            best = max(left, key=lambda key: self._best(key)[0], default=None)
            if best is None or self._best(best)[0] <= 0:
                return
            self._set(best, self._best(best)[1])

    def _total(self) -> float:
        runs = {id(run): run for key in self.named for run in self._of[key]}.values()
        gain = sum(math.log(run.rest + run.ratio * (1 - run.rest)) for run in runs)
        for key, often in self.named.items():
            gain += self._fast(key) * math.log(1 - often) - self._price(key)
            gain -= AT_TIMES_PRICE if often < ALWAYS else 0.0
        return gain

    def _exchange(self, key: Key) -> bool:
        """Whether another one instead, or none, is better; then it is done."""
        before = self.named[key]
        self._set(key, None)
        rival = self._rival(key)
        score, often = self._best(key)
        if rival is not None and self._best(rival)[0] > max(score, 0) + 1e-6:
            self._set(rival, self._best(rival)[1])
            return True
        if score <= 0:
            return True
        self._set(key, often)
        return often != before

    def _rival(self, key: Key) -> Key | None:
        """The best other one that would explain slow runs of a fault that is taken out."""
        runs = [run for run in self._of[key] if run.ratio > 1]
        rivals = {other: None for run in runs for other in run.touched if other != key and other not in self.named}
        return max(rivals, key=lambda rival: self._best(rival)[0], default=None)

    def _margin(self, key: Key) -> tuple[float, Key | None]:
        """How much better it is than the next best, and which that is."""
        often = self.named[key]
        self._set(key, None)
        rival = self._rival(key)
        margin = self._best(key)[0] - (self._best(rival)[0] if rival is not None else -math.inf)
        self._set(key, often)
        return margin, rival
