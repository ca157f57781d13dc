"""What can be wrong with a run of nccl-tests, and which of it makes the numbers no measure."""

from __future__ import annotations

from hpslurm.core.finding import P0, P1, P2, Rule

_RESULTS = "performance-testing.md § 2"
_FLOORS = "performance-testing.md § 3"
_RANKS = "performance-testing.md § 4"
_STOPPED = "performance-testing.md § 5"

FAILED = Rule("busbw-failed", P0, "Bus bandwidth far below what this hardware gives", _FLOORS, "slow_bandwidth")
LOW = Rule("busbw-low", P1, "Bus bandwidth below what this hardware gives", _FLOORS, "slow_bandwidth")
NO_FLOOR = Rule("busbw-no-floor", P2, "No source for a floor of the bandwidth", _FLOORS)
WRONG = Rule("busbw-wrong-data", P0, "Wrong data in a collective", "debugging-guide.md § 5", "data_corruption")
UNCHECKED = Rule("busbw-unchecked", P2, "Data were not checked", _RESULTS)
ABOVE = Rule("busbw-above-ceiling", P1, "Bus bandwidth above what the hardware can do", _RANKS)
ONE_RANK = Rule("busbw-one-rank", P2, "One rank: bus bandwidth is 0 by formula", _RANKS)
SHARED = Rule("busbw-shared-gpu", P1, "Ranks share a GPU", _RANKS)
RANKS = Rule("busbw-rank-count", P0, "Another number of ranks than meant", _RANKS)
NEVER_LEFT = Rule("busbw-never-left-node", P0, "The run never left its node", _RANKS)
NO_MPI = Rule("busbw-no-mpi", P0, "Every process ran for itself: built without MPI", _RANKS)
OVER_TCP = Rule("busbw-over-tcp", P0, "NCCL used TCP instead of EFA", "debugging-guide.md § 13", "efa_not_used")
FEW_NICS = Rule(
    "busbw-few-nics",
    P0,
    "NCCL found fewer EFA devices than the node has",
    "debugging-guide.md § 6",
    "efa_not_used",
)
UNEVEN_NICS = Rule(
    "busbw-uneven-nics",
    P1,
    "A rank uses fewer NICs than the others",
    "debugging-guide.md § 6",
    "efa_not_used",
)
NO_GDR = Rule(
    "busbw-no-gpudirect", P1, "Network traffic goes through host memory", "debugging-guide.md § 6", "gdr_missing"
)
UNREACHABLE = Rule(
    "busbw-peer-unreachable", P0, "EFA never reached the other node", "debugging-guide.md § 2", "security_group"
)
HANG = Rule("busbw-hang", P0, "The run hung", "debugging-guide.md § 1", "collective_timeout_unknown")
ERROR = Rule("busbw-run-failed", P0, "The run ended with an error", _STOPPED)
INCOMPLETE = Rule("busbw-incomplete", P0, "The output stops before its end", _STOPPED)
NOTHING = Rule("busbw-no-output", P0, "Nothing was printed that could be judged", _STOPPED)
USAGE = Rule("busbw-usage", P0, "nccl-tests printed its usage instead of running", _STOPPED)
SEVERAL = Rule("busbw-several-tables", P2, "Several tables in one file", _RESULTS)
NO_HEAD = Rule("busbw-head-missing", P2, "A part of the table's head is missing", _RESULTS)
NUMBERS = Rule("busbw-bad-numbers", P0, "Numbers in the table that cannot be", _RESULTS)
REDUCED = Rule("busbw-sizes-cut", P1, "The largest sizes were left out for want of GPU memory", _RESULTS)
CPU_TIME = Rule("busbw-cpu-time", P0, "The table shows CPU time, not bandwidth of the GPUs", _RESULTS)

# After these the numbers do not tell about what was meant to be measured: never a pass.
NOT_JUDGED = (
    RANKS,
    SHARED,
    NEVER_LEFT,
    NO_MPI,
    HANG,
    ERROR,
    INCOMPLETE,
    NOTHING,
    USAGE,
    NUMBERS,
    CPU_TIME,
    UNREACHABLE,
)
MEASURED_BAD = (FAILED, WRONG, OVER_TCP, FEW_NICS)
# A run with one of these is no measure for later runs, muted or not.
NO_MEASURE = (*NOT_JUDGED, *MEASURED_BAD, LOW, ABOVE, SEVERAL, NO_HEAD)
