"""One run, what was meant, and what a judge made of it. Plain values; all rates are GB/s."""

from __future__ import annotations

from collections.abc import Mapping

from hpslurm.core.finding import Finding
from hpslurm.core.values import dataclass, field
from hpslurm.nccl_tests.rules import ABOVE, MEASURED_BAD, NO_MEASURE, NOT_JUDGED
from hpslurm.scan.nccl_tests import Output

# Outcomes of one size.
GOOD, BELOW, FAR_BELOW, TOO_MUCH, NOT_COMPARED = "good", "low", "failed", "above ceiling", "no floor"


@dataclass(frozen=True)
class Own:
    """The site's own runs of one size: median and extremes of busbw in GB/s, and how many runs."""

    median: float
    low: float
    high: float
    spread: float  # median absolute deviation, scaled to a standard deviation
    runs: int


@dataclass(frozen=True)
class Facts:
    """One run: its output, and what was meant. None is what nobody said.

    ``status`` is the launcher's exit status, ``timed_out`` the limit in seconds at which we ended it (0: we did not).
    """

    output: Output
    instance: str = ""  # without ml.
    nodes: int | None = None
    gpus: int | None = None  # per node
    status: int | None = None
    timed_out: float = 0.0
    own: Mapping[int, Own] = field(default_factory=dict)  # by size in bytes
    best: Mapping[tuple[str, int, int], float] = field(default_factory=dict)  # of all tables: sizes.best_of


@dataclass(frozen=True)
class Size:
    """The verdict on one size; busbw is the lower half of the row. All in GB/s."""

    size: int
    busbw: float
    outcome: str
    expected: float | None = None
    warn: float | None = None
    fail: float | None = None
    ceiling: float | None = None
    source: str = ""

    @property
    def ratio(self) -> float | None:
        return self.busbw / self.expected if self.expected else None


@dataclass(frozen=True)
class Verdict:
    """All sizes and findings of one run, and how many nodes and ranks it really had."""

    sizes: tuple[Size, ...]
    findings: tuple[Finding, ...]
    nodes: int | None
    ranks: int | None
    instance: str

    @property
    def counted(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.muted]

    @property
    def failed(self) -> bool:
        return any(finding.rule in MEASURED_BAD for finding in self.counted)

    @property
    def judged(self) -> bool:
        return not any(finding.rule in NOT_JUDGED for finding in self.counted)

    @property
    def credible(self) -> bool:
        """Nothing is above what the hardware can do: that is a measuring error, and no good run."""
        return not any(finding.rule is ABOVE for finding in self.counted)

    @property
    def against(self) -> list[Finding]:
        """Why this run is no measure for later ones; a mute hides a finding and makes no run better."""
        return [finding for finding in self.findings if finding.rule in NO_MEASURE]

    @property
    def exit_code(self) -> int:
        """0 judged fine, 3 bad bandwidth or data, 1 could not be judged."""
        return 3 if self.failed else 0 if self.judged and self.credible else 1

    @property
    def words(self) -> str:
        if self.failed:
            return "bad"
        if not self.judged:
            return "not judged"
        if not self.credible:
            return "not credible"
        if any(size.outcome == BELOW for size in self.sizes):
            return "low"
        return "good" if any(size.outcome == GOOD for size in self.sizes) else "nothing to compare with"
