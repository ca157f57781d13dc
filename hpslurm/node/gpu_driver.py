"""GPU driver: does NVML start, and does every GPU answer?

A driver that is not loaded, that does not match its library, or that hangs ends every
CUDA program at its first call. A GPU that fell off the bus answers "lost" until the
node is booted again. A process that is stuck inside the driver cannot be killed; it is
named, and no second one is started to hang beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus, instance
from hpslurm.sources import gpu
from hpslurm.sources.host import STUCK, Host, Left

SECTION = "debugging-guide.md § 7"
NO_DRIVER = Rule("gpu-driver-missing", P0, "GPU driver not loaded", SECTION, cause="driver_mismatch")
MISMATCH = Rule(
    "gpu-driver-mismatch",
    P0,
    "GPU driver and its library differ",
    "debugging-guide.md § 10",
    cause="driver_mismatch",
)
STUCK_DRIVER = Rule("gpu-driver-stuck", P0, "GPU driver does not answer", SECTION, cause="gpu_gsp", gateable=True)
LOST = Rule("gpu-lost", P0, "GPU lost", SECTION, cause="gpu_fell_off_bus", gateable=True)
RESET = Rule("gpu-reset-required", P0, "GPU waits for a reset", SECTION, gateable=True)
SILENT = Rule("gpu-silent", P1, "One GPU does not answer, others do", SECTION, gateable=True)
INFOROM = Rule("gpu-inforom", P1, "GPU's own flash memory damaged", SECTION, gateable=True)
ERROR = Rule("gpu-error", P1, "GPU answers with an error", SECTION, gateable=True)
ERRORS = Rule("gpu-errors", P0, "GPU returns errors repeatedly", SECTION, gateable=True)

STUCK_FOR = 60.0  # seconds in state D after which it is not a slow start any more
_ODD = (gpu.TIMEOUT, gpu.NOT_READY, gpu.UNKNOWN_ERROR)
JUDGED = {gpu.LOST, gpu.RESET_REQUIRED, gpu.BAD_INFOROM, *_ODD}
_SEE = gpus.see("nvidia-smi -L", "see which GPUs the driver shows")
_LOG = Suggestion(
    LOOK, "see what the driver said", "srun -w {nodes} sh -c 'dmesg | grep -i -e nvrm -e nvidia | tail -40'"
)
_REBOOT = suggest.reboot("it brings the GPU back, or shows that it does not come back")


@dataclass(frozen=True)
class Facts:
    type: str  # instance type; empty where not known
    expected: int | None  # GPUs of the type
    on_bus: int  # GPUs that PCI shows
    module: str  # version of the loaded kernel module, from /proc; empty where none is loaded
    driver: str  # version that NVML reports
    library: str  # version of libnvidia-ml.so.1
    cuda: int | None
    code: int | None  # NVML's answer to init, or to the count
    text: str  # the same in words, or why there was no answer
    count: int  # GPUs that NVML counts
    codes: dict[str, tuple[int, ...]]  # GPU to the error codes it gave
    silent: tuple[str, ...]  # GPUs that did not answer in time
    steady: bool  # nvidia-persistenced runs, so that no first touch takes seconds
    left: Left | None = None
    trouble: str = ""  # GPUs that cannot even be named, for a reason that no rule is about


def start(host: Host) -> None:
    gpu.start(host)


def module_version(host: Host) -> str:
    """Of the loaded module, by the driver's own line in /proc; empty where there is none."""
    return version_in(host.word(gpu.VERSION) or "")


def version_in(text: str) -> str:
    """The version of the line, or empty.

    >>> version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build")
    '570.172.08'
    >>> version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024")
    '535.161.07'
    """
    words = text.partition("Kernel Module")[2].replace("for x86_64", "").replace("for aarch64", "").split()
    return words[0] if words else ""


def service_runs(host: Host, name: str) -> bool | None:
    """Does systemd's unit have a process? None where its group of processes cannot be seen."""
    for base in ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"):
        if host.exists(base):
            return bool(host.word(f"{base}/{name}.service/cgroup.procs"))
    return None


def collect(host: Host) -> Facts:
    seen = gpu.snapshot(host)
    name, wanted = "", None
    try:
        name, row = instance.expected(host)
        wanted = row.gpus
    except Unknown:
        pass  # the count says so
    bad = next((seen.trouble[step] for step in ("import", "init", "count") if step in seen.trouble), None)
    if bad is not None and bad.code is None:
        raise Unknown(bad.text)
    codes = {str(one): _codes(one) for one in seen.gpus if _codes(one)}
    nameless = [one for one in seen.gpus if {"handle", "identity"} & set(one.trouble) and not set(_codes(one)) & JUDGED]
    return Facts(
        type=name,
        expected=wanted,
        on_bus=len(gpu.on_bus(host)),
        module=module_version(host),
        driver=seen.driver,
        library=seen.library,
        cuda=seen.cuda,
        code=bad.code if bad else None,
        text=bad.text if bad else seen.late,
        count=len(seen.gpus),
        codes=codes,
        silent=tuple(str(device) for device in seen.gpus if any(why.code is None for why in device.trouble.values())),
        steady=bool(service_runs(host, "nvidia-persistenced")),
        left=seen.left,
        trouble=gpus.troubles(nameless, ["identity"]) if not seen.late else "",
    )


def _codes(device: gpu.Gpu) -> tuple[int, ...]:
    return tuple(why.code for why in device.trouble.values() if why.code is not None)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.code in (gpu.NOT_LOADED, gpu.NO_LIBRARY):
        if not (facts.expected or facts.on_bus):
            raise Skip(f"no GPU here: {facts.text}")
        yield _no_driver(facts)
        return
    if facts.code == gpu.MISMATCH:
        yield _mismatch(facts)
        return
    if facts.left and facts.left.state == STUCK and (facts.steady or facts.left.seconds >= STUCK_FOR):
        yield _stuck(facts.left, facts.text)
        return
    yield from _sick(facts)
    if facts.code is not None and facts.code not in (gpu.LOST, gpu.RESET_REQUIRED, *_ODD):
        raise Unknown(f"NVML does not start: {facts.text} (code {facts.code})")
    if facts.silent and len(facts.silent) < facts.count:
        yield SILENT.found(
            f"{gpus.names(facts.silent)} of {facts.count}: {facts.text}; the others answered",
            evidence=[Evidence(name, facts.text) for name in facts.silent],
            suggest=[_SEE, _LOG, suggest.save_evidence(), suggest.drain(SILENT.id), _REBOOT],
        )
    elif facts.silent or (facts.text and facts.code is None):
        slow = "" if facts.steady else "; without nvidia-persistenced a first touch takes seconds"
        raise Unknown(facts.text + slow)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _no_driver(facts: Facts) -> Finding:
    where = f"a {facts.type} has {facts.expected} GPUs" if facts.expected else f"PCI shows {facts.on_bus} GPUs"
    return NO_DRIVER.found(
        f"{where}, and NVML says: {facts.text}",
        evidence=[
            Evidence(gpu.VERSION, facts.module or "no kernel module loaded"),
            Evidence(gpu.PCI, f"{facts.on_bus} GPUs"),
        ],
        suggest=[
            _LOG,
            Suggestion(LOOK, "see whether the module is there", "srun -w {nodes} modinfo -F version nvidia"),
            suggest.drain(NO_DRIVER.id),
            suggest.reboot("the module is loaded at boot"),
        ],
    )


def _mismatch(facts: Facts) -> Finding:
    return MISMATCH.found(
        f"kernel module {facts.module or 'unknown'}, library another: {facts.text}",
        evidence=[Evidence(gpu.VERSION, facts.module or "not readable"), Evidence("NVML", facts.text)],
        suggest=[
            Suggestion(
                LOOK,
                "see both versions",
                "srun -w {nodes} sh -c 'cat /proc/driver/nvidia/version; ls -l /usr/lib/*/libnvidia-ml.so.*'",
            ),
            suggest.drain(MISMATCH.id),
            Suggestion(
                CONFIGURE,
                "packages were updated under a running module: keep automatic updates off the driver",
                "srun -w {nodes} systemctl status unattended-upgrades dnf-automatic.timer",
            ),
            suggest.reboot("it loads the module that belongs to the library"),
        ],
    )


def _stuck(left: Left, text: str) -> Finding:
    where = f", waits in {left.where}" if left.where else ""
    return STUCK_DRIVER.found(
        f"process {left.pid} is stuck in the driver for {left.seconds:.0f} s (state {left.state}{where})",
        evidence=[Evidence(f"/proc/{left.pid}/stat", f"state {left.state}{where}"), Evidence("NVML", text)],
        suggest=[
            _LOG,
            suggest.save_evidence(),
            suggest.drain(STUCK_DRIVER.id),
            suggest.reboot("a process stuck in the kernel cannot be killed; a reboot from inside may hang as well"),
            suggest.replace("if it is stuck again after the reboot"),
        ],
    )


def _sick(facts: Facts) -> Iterator[Finding]:
    codes = {name: set(found) for name, found in facts.codes.items()}
    if facts.code in (gpu.LOST, gpu.RESET_REQUIRED, *_ODD):
        codes["NVML"] = {facts.code}
    gone = [name for name, found in codes.items() if gpu.LOST in found]
    waits = [name for name, found in codes.items() if gpu.RESET_REQUIRED in found and name not in gone]
    flash = [name for name, found in codes.items() if gpu.BAD_INFOROM in found]
    odd = [name for name, found in codes.items() if found & set(_ODD) and name not in gone + waits]
    often = [name for name in odd if len([code for code in facts.codes.get(name, ()) if code in _ODD]) > 1]
    for rule, named, words in (
        (LOST, gone, "GPU is lost"),
        (RESET, waits, "GPU requires a reset"),
        (INFOROM, flash, "infoROM is corrupted"),
        (ERRORS, often, "several calls failed"),
        (ERROR, [name for name in odd if name not in often], "a call failed"),
    ):
        if named:
            yield _bad(rule, named, words, facts)


def _bad(rule: Rule, named: list[str], words: str, facts: Facts) -> Finding:
    told = ", ".join(name if name == "NVML" else gpus.names([name]) for name in named)
    codes = {name: facts.codes.get(name) or (facts.code,) for name in named}
    return rule.found(
        f"{told}: {words}",
        evidence=[Evidence(name, f"NVML return codes {', '.join(map(str, codes[name]))}") for name in named],
        suggest=[
            _SEE,
            _LOG,
            suggest.save_evidence(),
            suggest.drain(rule.id),
            _REBOOT,
            suggest.replace("if it comes back within a day of the reboot"),
        ],
    )
