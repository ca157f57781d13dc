"""Which network NCCL chose, where EFA was meant."""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import Event
from hpslurm.scan.model import evidence

Lines = list[tuple[int, str]]  # line number, text
_SET = linear.late(r"NCCL_NET set by environment to Socket")
_ALONE = linear.late(r"\brank 0 n[Rr]anks 1 ")
_USED = linear.late(
    r"Using network (?:AWS )?(?:Libfabric|IB\w*|OFI|UCX)|Selected [Pp]rovider is efa|via NET/(?:AWS )?Libfabric"
)
_MEANT = linear.late(
    r"NET/OFI|FI_PROVIDER|FI_EFA|libnccl-ofi|aws-ofi|AWS Libfabric|\b(?:p4de?|p5en?|p6-\w+)[.-]\d*x?large"
)


def events(path: str, lines: Lines) -> Iterator[Event]:
    """TCP by a setting, or because the plugin or the machine speaks of EFA and sockets are used."""
    for number, line in lines:
        if _SET.search(line):
            yield evidence("net-socket", path, number, line[:300])
            return
    socket = next(((number, line[:300]) for number, line in lines if "Using network Socket" in line), None)
    meant = any(_MEANT.search(line) for _, line in lines)
    if any(_ALONE.search(line) for _, line in lines):  # one process needs no network
        return
    if socket and meant and not any(_USED.search(line) for _, line in lines):
        yield evidence("net-socket", path, *socket)
