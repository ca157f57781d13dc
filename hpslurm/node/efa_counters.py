"""EFA's hardware counters: what each device sent, and what went wrong on it, during a job.

They count since the driver was loaded, so that only a difference means anything: what
grew between prolog and epilog belongs to the job. Retransmissions alone are normal for
EFA's protocol. A device that stands still while the others move is one that NCCL does not use.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import size
from hpslurm.core.values import dataclass
from hpslurm.node import counters, efa
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 6"
ERRORS = Rule("efa-errors", P1, "EFA devices counted errors during the job", SECTION)
IDLE = Rule("efa-rail-idle", P1, "EFA devices idle while others worked", SECTION)

MOVED = ("tx_bytes", "rx_bytes")
BAD = (
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
    "cmds_err",
    "no_completion_cmds",
    "reg_mr_err",
)
NORMAL = ("rx_drops", "retrans_timeout_events")  # kept in the facts: EFA's protocol sends again by design
IDLE_BELOW = 0.01  # share of what the busiest device of the node moved
BUSY = 1 << 30  # bytes; below this a job has not used EFA in earnest


@dataclass(frozen=True)
class Facts:
    devices: dict[str, dict[str, int]]  # device to counter to count since the driver was loaded


def collect(host: Host) -> Facts:
    devices = {name: _counters(host, f"{efa.SYSFS}/{name}") for name in efa.devices(host)}
    if not devices:
        raise Skip("no EFA device")
    if not any(devices.values()):
        raise Unknown("no EFA device shows counters: they need the driver of the EFA installer, 2.5 or later")
    return Facts(devices)


def _counters(host: Host, folder: str) -> dict[str, int]:
    """Newer drivers keep some per port and some per device, older ones all per device."""
    counts = {}
    for name in (*MOVED, *BAD, *NORMAL):
        for place in (f"{folder}/ports/1/hw_counters", f"{folder}/hw_counters"):
            count = host.number(f"{place}/{name}")
            if count is not None:
                counts[name] = count
                break
    return counts


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    """Nothing: an absolute count says nothing about now."""
    return iter(())


def grown(before: Facts, after: Facts) -> dict[str, dict[str, int]]:
    """What each device counted in between; a device or counter that restarted is left out."""
    growth = {}
    for name, counts in after.devices.items():
        old = before.devices.get(name)
        if old is not None:
            growth[name] = {one: now - old[one] for one, now in counts.items() if one in old and now >= old[one]}
    return growth


def not_known(before: Facts, after: Facts) -> str:
    """Why ``changed`` could not judge all, for the note of the result; empty where it could."""
    lost = counters.unknown(before.devices, after.devices)
    return f"counters were reset, or not read both times: {' '.join(lost)}" if lost else ""


def changed(before: Facts, after: Facts, policy: Policy) -> Iterator[Finding]:
    """What the epilog finds: ``before`` is of the prolog of the same job, restart and boot."""
    growth = grown(before, after)
    bad = {
        name: {counter: by for counter, by in counts.items() if counter in BAD and by}
        for name, counts in growth.items()
    }
    see = Suggestion(
        LOOK, "see all counters", "srun -w {nodes} sh -c 'grep -H . /sys/class/infiniband/*/ports/1/hw_counters/*'"
    )
    rows = {name: counts for name, counts in bad.items() if counts}
    if rows:
        total = sum(sum(counts.values()) for counts in rows.values())
        yield ERRORS.found(
            f"{total} errors on {len(rows)} of {len(growth)} devices, expected 0",
            evidence=[
                Evidence(f"{efa.SYSFS}/{name}", " ".join(f"{counter} +{by}" for counter, by in counts.items()))
                for name, counts in sorted(rows.items())
            ],
            suggest=[see],
        )
    moved = {name: sum(counts.get(counter, 0) for counter in MOVED) for name, counts in growth.items()}
    busiest = max(moved.values(), default=0)
    idle = sorted(name for name, size in moved.items() if size < busiest * IDLE_BELOW)
    if busiest >= BUSY and idle:
        yield IDLE.found(
            f"{len(idle)} of {len(moved)} devices moved less than 1% of the {size(busiest)} of the busiest",
            evidence=[Evidence(f"{efa.SYSFS}/{name}", f"{moved[name]} bytes") for name in idle],
            suggest=[
                see,
                Suggestion(
                    LOOK,
                    "NCCL says how many it found: (found N nics), with NCCL_DEBUG=INFO; FI_EFA_IFACE and "
                    "NCCL_NETDEVS_POLICY hide some, and a job on some of the GPUs uses some of the devices",
                ),
            ],
        )
