"""The door to the GPUs: one NVML snapshot as plain values, taken in a child process.

A call into a sick driver may never return, so the child (``hpslurm.sources.nvml``) is
started first, collected last, and what it answered before a hang is kept. "Not
supported" is ``None``; an error, or no answer in time, is in ``trouble`` of that step.
A saved machine has ``gpus.json`` instead, in the shape that ``plain_snapshot`` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache

from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field, fields
from hpslurm.sources.host import Busy, Host, Left, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

VERSION = "/proc/driver/nvidia/version"
PCI = "/sys/bus/pci/devices"
NVIDIA, GPU_CLASSES, SWITCH_CLASS = "0x10de", ("0x0300", "0x0302"), "0x0680"

# NVML's return codes that we tell apart
NOT_LOADED, TIMEOUT, NO_LIBRARY, BAD_INFOROM, LOST, RESET_REQUIRED = 9, 10, 12, 14, 15, 16
MISMATCH, NOT_READY, UNKNOWN_ERROR = 18, 27, 999


@dataclass(frozen=True)
class Trouble:
    """Why one step has no answer: NVML's return code, or None where none came, and words."""

    code: int | None
    text: str


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML shows it. None: not supported, or see ``trouble`` of the same name."""

    index: int
    uuid: str = ""
    pci: str = ""  # as kernel lines have it: 0000:9b:00
    name: str = ""
    serial: str = ""
    vbios: str = ""
    minor: int | None = None  # the N of /dev/nvidiaN, and of Slurm's GRES
    recovery: int | None = None  # what the driver wants: 0 nothing, 1 reset, 2 reboot ...
    remap: tuple[int, ...] | None = None  # rows: correctable, uncorrectable; flags: pending, failure
    histogram: tuple[int, ...] | None = None  # banks by spare rows left: max, high, partial, low, none
    ecc_mode: tuple[int, ...] | None = None  # now, after the next reboot
    ecc: tuple[int | None, ...] | None = None  # volatile corrected, uncorrected; aggregate the same
    sram_exceeded: int | None = None
    retired: tuple[int | None, ...] | None = None  # pages: single-bit, double-bit; flag: pending
    links: tuple[int | None, ...] | None = None  # 1 active, 0 not, for each NVLink
    link_speed: int | None = None  # MB/s
    link_errors: dict[str, tuple[int, ...]] = field(default_factory=dict)  # counter to its value on each link
    fabric: tuple[int | None, ...] | None = None  # state, status, health mask, health summary
    clocks: int | None = None  # bit mask of reasons
    temperature: int | None = None  # degrees Celsius
    slowdown: dict[str, int] = field(default_factory=dict)  # reason to ns since the driver was loaded
    pcie: tuple[int | None, ...] | None = None  # generation, width; both at most; replays
    persistence: int | None = None
    processes: tuple[int, ...] | None = None  # pids with a CUDA context
    mig: tuple[int, ...] | None = None  # now, after the next reset
    activity: tuple[int | None, ...] | None = None  # use in percent; power and its limit in mW; MiB in use; SM MHz
    nvlink_kib: int | None = None  # sent and received over all links since the driver was loaded
    trouble: dict[str, Trouble] = field(default_factory=dict)

    def __str__(self) -> str:
        known = ", ".join(word for word in (self.uuid, self.pci) if word)
        return f"GPU {self.index} ({known})" if known else f"GPU {self.index}"


@dataclass(frozen=True)
class Snapshot:
    """All that one look at NVML brought. ``gpus`` has a value for each GPU it counts."""

    gpus: tuple[Gpu, ...] = ()
    count: int | None = None
    driver: str = ""  # version of the kernel module
    library: str = ""  # version of libnvidia-ml.so.1
    cuda: int | None = None  # 12080 is 12.8
    trouble: dict[str, Trouble] = field(default_factory=dict)  # of init, import, count ...
    late: str = ""  # why we stopped waiting, or empty
    left: Left | None = None  # the child, where it could not be killed
    seconds: float = 0.0


STEPS = tuple(
    name
    for name in (field.name for field in fields(Gpu))
    if name not in ("index", "uuid", "pci", "name", "serial", "vbios", "minor", "trouble")
)
# Steps that answer with a list of whole numbers, and how many; 0: any number
_LISTS = {
    "remap": 4,
    "histogram": 5,
    "ecc_mode": 2,
    "ecc": 4,
    "retired": 3,
    "links": 0,
    "fabric": 4,
    "pcie": 5,
    "processes": 0,
    "mig": 2,
    "activity": 5,
}
_MAY_LACK = ("ecc", "retired", "links", "fabric", "pcie", "activity")  # single answers in them may be None
_WRONG = (ValueError, TypeError, AttributeError, KeyError, OverflowError)


def short_pci(address: str) -> str:
    """An address as the kernel prints it, of what NVML, sysfs and the kernel have.

    >>> short_pci("00000000:9B:00.0"), short_pci("0000:9b:00.0"), short_pci("0000:9b:00")
    ('0000:9b:00', '0000:9b:00', '0000:9b:00')
    """
    domain, _, rest = address.strip().lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}" if rest else ""


@lru_cache(maxsize=4)  # every probe of a look asks
def on_bus(host: Host, classes: tuple[str, ...] = GPU_CLASSES) -> tuple[str, ...]:
    """PCI addresses of NVIDIA's functions of these classes, whether a driver holds them or not."""
    addresses = []
    for path in host.glob(f"{PCI}/*"):
        try:
            if host.word(f"{path}/vendor") == NVIDIA and (host.word(f"{path}/class") or "")[:6] in classes:
                addresses.append(short_pci(path.rpartition("/")[2]))
        except OSError:  # a device that is being removed
            continue
    return tuple(addresses)


def present(host: Host) -> bool:
    """Is there anything of NVIDIA's here: a loaded driver, a device file, or a GPU on the bus?"""
    return (
        host.exists(VERSION)
        or host.exists("/dev/nvidiactl")
        or (bool(host.root) and host.exists("/gpus.json"))
        or bool(on_bus(host))
    )


def start(host: Host) -> None:
    if present(host) and not (host.root and host.exists("/gpus.json")):
        host.start("nvml")


@lru_cache(maxsize=4)
def snapshot(host: Host) -> Snapshot:
    """The snapshot of this look. Raises Skip where no GPU is, Unknown where we cannot ask at all."""
    if not present(host):
        raise Skip("no NVIDIA GPU here")
    if host.root and host.exists("/gpus.json"):
        try:
            return plain_snapshot(json.loads(host.read("/gpus.json")))
        except _WRONG as error:
            raise Unknown(f"{host.path('/gpus.json')} is not a valid snapshot: {error}") from None
    try:
        output = host.answer("nvml")
    except Busy as busy:
        return Snapshot(late=str(busy), left=busy.left)
    answered = from_lines(output.out.splitlines(), output.late)
    if not answered.trouble and answered.count is None and not output.late:
        raise Unknown(f"the child that asks NVML ended without an answer: {error_of(output)}")
    return Snapshot(**{**answered.__dict__, "late": output.late, "left": output.left})


def from_lines(lines: Iterable[str], late: str = "") -> Snapshot:
    """A snapshot from the child's lines; one that is cut off is passed over. Raises Unknown for wrong shapes.

    >>> snapshot = from_lines(['{"step": "count", "value": 1}', '{"step": "driver", "value": "570.133.20"}',
    ...     '{"gpu": 0, "step": "identity", "value": {"uuid": "GPU-0", "pci": "00000000:9B:00.0"}}',
    ...     '{"gpu": 0, "step": "ecc", "trouble": "GPU is lost", "code": 15}', '{"step": "end"}'])
    >>> snapshot.driver, snapshot.gpus[0].pci, snapshot.gpus[0].trouble["ecc"].text
    ('570.133.20', '0000:9b:00', 'GPU is lost')
    """
    try:
        return _from_lines(lines, late)
    except _WRONG as error:
        raise Unknown(f"the child that asks NVML answered in a shape that we do not know: {error}") from None


def _from_lines(lines: Iterable[str], late: str) -> Snapshot:
    whole: dict[str, Any] = {"trouble": {}}
    gpus: dict[int, dict[str, Any]] = {}
    ended = False
    for line in lines:
        try:
            row = json.loads(line)
            step, index = row["step"], row.get("gpu")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        into = whole if index is None else gpus.setdefault(index, {"index": index, "trouble": {}, "answered": set()})
        if "answered" in into:
            into["answered"].add(step)
        if "trouble" in row:
            into["trouble"][step] = {"code": row.get("code"), "text": row["trouble"]}
        elif step == "identity":
            into.update(row["value"] or {})
        elif step == "end":
            ended = True
        elif step in (*STEPS, "count", "driver", "library", "cuda"):
            into[step] = row["value"]
    if not ended and whole.get("count") is not None:
        for index in range(min(int(whole["count"]), 64)):
            gpu_row = gpus.setdefault(index, {"index": index, "trouble": {}, "answered": set()})
            if "handle" not in gpu_row["trouble"]:
                for step in STEPS:
                    if step not in gpu_row["answered"]:
                        gpu_row["trouble"].setdefault(step, {"code": None, "text": late or "no answer"})
    for gpu_row in gpus.values():
        gpu_row.pop("answered")
    return plain_snapshot({**whole, "gpus": [gpus[index] for index in sorted(gpus)]})


def plain_snapshot(saved: dict[str, Any]) -> Snapshot:
    """A snapshot from JSON values.

    ``all`` holds what every GPU has in common, ``gpus`` a list of what differs (or a
    number of like ones); ``{i}`` in a text becomes the index. Raises ValueError,
    TypeError or KeyError where the shape is wrong.
    """
    rows = saved.get("gpus", [])
    rows = [{} for _ in range(rows)] if isinstance(rows, int) else rows
    gpus = tuple(_gpu({**saved.get("all", {}), "index": number, **row}) for number, row in enumerate(rows))
    left = saved.get("left")
    return Snapshot(
        gpus=gpus,
        count=_number(saved.get("count", len(gpus) if rows else None), "count"),
        driver=clean(str(saved.get("driver") or ""), 40),
        library=clean(str(saved.get("library") or ""), 40),
        cuda=_number(saved.get("cuda"), "cuda"),
        trouble=_troubles(saved.get("trouble", {})),
        late=clean(str(saved.get("late") or "")),
        left=Left(int(left["pid"]), str(left["state"])[:1], float(left["seconds"]), str(left["where"]))
        if left
        else None,
    )


def _gpu(row: dict[str, Any]) -> Gpu:
    values: dict[str, Any] = {"index": int(row["index"]), "trouble": _troubles(row.get("trouble", {}))}
    for name in ("uuid", "name", "serial", "vbios"):
        values[name] = clean(str(row.get(name) or "").replace("{i}", str(values["index"])), 96)
    values["pci"] = short_pci(str(row.get("pci") or "").replace("{i}", str(values["index"])))
    for name in (*STEPS, "minor"):
        value = row.get(name)
        if name in ("link_errors", "slowdown"):
            values[name] = _counters(value or {}, name)
        elif name in _LISTS:
            values[name] = None if value is None else _numbers(value, name)
        else:
            values[name] = _number(value, name)
    return Gpu(**values)


def _number(value: Any, name: str) -> int | None:
    if value is None or isinstance(value, int):
        return value
    raise ValueError(f"{name} is {value!r}, expected a whole number")


def _numbers(value: Any, name: str, length: int = -1) -> tuple[int | None, ...]:
    length = _LISTS[name] if length < 0 else length
    good = isinstance(value, list) and (not length or len(value) == length)
    lack = name in _MAY_LACK
    if good and all(isinstance(one, int) or (lack and one is None) for one in value):
        return tuple(value)
    raise ValueError(f"{name} is {value!r}, expected {length or 'some'} whole numbers")


def _counters(value: dict[str, Any], name: str) -> dict[str, Any]:
    if name == "link_errors":
        return {str(key): _numbers(numbers, name, 0) for key, numbers in value.items()}
    return {str(key): _number(number, name) or 0 for key, number in value.items()}


def _troubles(rows: dict[str, Any]) -> dict[str, Trouble]:
    def one(row: dict[str, Any]) -> Trouble:
        return Trouble(_number(row.get("code"), "code"), clean(str(row.get("text", "")), 160))

    return {str(step): one(row) for step, row in rows.items()}
