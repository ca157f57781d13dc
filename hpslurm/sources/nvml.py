"""Runs in a child process: asks NVML about every GPU, one JSON line for each answer.

A call into the driver may take seconds or never return, so each answer leaves the
process as soon as it is there, and each GPU has a thread of its own: what was answered
before a hang is kept, and one sick GPU does not hide the others. Nothing is judged or
changed here. ``hpslurm.sources.gpu`` reads the lines.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from ctypes import byref
from functools import partial
from json import dumps
from typing import Any

# Answers that mean "this GPU or driver does not have that", not an error: not supported,
# argument unknown to this driver, function not in this driver, structure newer than this driver.
NOT_SUPPORTED = (3, 13, 25)

FIELD_LINK_SPEED, FIELD_LINK_COUNT = 90, 91  # of all links: MB/s, and how many there are
FIELD_LINK_ERRORS = {"nvlink_replay": 161, "nvlink_recovery": 162, "nvlink_crc": 163}  # scope: link
LINK_COUNTERS = {"nvlink_replay": 0, "nvlink_recovery": 1, "nvlink_crc": 2, "nvlink_crc_data": 3}
FIELD_RECOVERY = 230
FIELDS_LINK_DATA, ALL_LINKS = (138, 139), 0xFFFFFFFF  # KiB sent, KiB received; the scope is one link, or all
FIELDS_SLOWDOWN = {"software_thermal": 269, "hardware_thermal": 270, "power_brake": 271}  # ns
MOST_LINKS = 64  # a figure from a sick driver must not make us loop


class Nvml:
    """The calls we make, in the names of our own facts. ``None`` means not supported."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def ask(self, call: str, *args: Any) -> Any:
        """The answer; None where there is nothing of the kind. Raises NVMLError for all else."""
        function = getattr(self.library, call, None)
        if function is None:
            return None
        try:
            return function(*args)
        except self.library.NVMLError as error:
            if error.value in NOT_SUPPORTED:
                return None
            raise

    def field(self, gpu: Any, number: int, scope: int = 0) -> int | None:
        """One field value as a whole number."""
        values = self.ask("nvmlDeviceGetFieldValues", gpu, [(number, scope)])
        if values is None or values[0].nvmlReturn in (*NOT_SUPPORTED, 2):  # 2: no such link or field
            return None
        if values[0].nvmlReturn:
            raise self.library.NVMLError(values[0].nvmlReturn)
        kind, value = values[0].valueType, values[0].value
        if kind == self.library.NVML_VALUE_TYPE_UNSIGNED_INT:
            return int(value.uiVal)
        if kind == self.library.NVML_VALUE_TYPE_UNSIGNED_LONG:
            return int(value.ulVal)
        if kind == self.library.NVML_VALUE_TYPE_DOUBLE:
            return int(value.dVal)
        return int(value.ullVal)

    # steps: each is one line of output, in this order for every GPU

    def identity(self, gpu: Any) -> dict[str, Any]:
        pci = self.ask("nvmlDeviceGetPciInfo", gpu)
        return {
            "uuid": self.ask("nvmlDeviceGetUUID", gpu) or "",
            "pci": _text(pci.busId) if pci else "",
            "name": self.ask("nvmlDeviceGetName", gpu) or "",
            "serial": self.ask("nvmlDeviceGetSerial", gpu) or "",
            "minor": self.ask("nvmlDeviceGetMinorNumber", gpu),
            "vbios": self.ask("nvmlDeviceGetVbiosVersion", gpu) or "",
        }

    def recovery(self, gpu: Any) -> int | None:
        return self.field(gpu, FIELD_RECOVERY)

    def remap(self, gpu: Any) -> Any:
        return self.ask("nvmlDeviceGetRemappedRows", gpu)

    def histogram(self, gpu: Any) -> list[int] | None:
        rows = self.ask("nvmlDeviceGetRowRemapperHistogram", gpu)
        return [rows.max, rows.high, rows.partial, rows.low, rows.none] if rows else None

    def ecc_mode(self, gpu: Any) -> Any:
        return self.ask("nvmlDeviceGetEccMode", gpu)

    def ecc(self, gpu: Any) -> list[int | None]:
        """Volatile corrected and uncorrected, aggregate corrected and uncorrected."""
        return [self.ask("nvmlDeviceGetTotalEccErrors", gpu, kind, life) for life in (0, 1) for kind in (0, 1)]

    def sram_exceeded(self, gpu: Any) -> int | None:
        struct = getattr(self.library, "c_nvmlEccSramErrorStatus_v1_t", None)
        if struct is None:
            return None
        status = struct()
        if self.ask("nvmlDeviceGetSramEccErrorStatus", gpu, byref(status)) is None:
            return None
        return int(status.bThresholdExceeded)

    def retired(self, gpu: Any) -> list[int | None] | None:
        """Pages retired for single-bit and for double-bit errors, and whether some wait for a reboot."""
        single = self.ask("nvmlDeviceGetRetiredPages", gpu, 0)
        double = self.ask("nvmlDeviceGetRetiredPages", gpu, 1)
        if single is None or double is None:
            return None
        return [len(single), len(double), self.ask("nvmlDeviceGetRetiredPagesPendingStatus", gpu)]

    def links(self, gpu: Any) -> list[int | None] | None:
        count = self.field(gpu, FIELD_LINK_COUNT)
        if not count:
            return None
        return [self.ask("nvmlDeviceGetNvLinkState", gpu, link) for link in range(min(count, MOST_LINKS))]

    def link_speed(self, gpu: Any) -> int | None:
        return self.field(gpu, FIELD_LINK_SPEED)

    def link_errors(self, gpu: Any) -> dict[str, list[int]] | None:
        """Counter to its value on each link; by field where the older call is not supported."""
        links = range(min(self.field(gpu, FIELD_LINK_COUNT) or 0, MOST_LINKS))
        errors: dict[str, list[int]] = {}
        for name in LINK_COUNTERS:
            values = [self._link_error(gpu, name, link) for link in links]
            if known := [value for value in values if value is not None]:
                errors[name] = known if len(known) == len(values) else [value or 0 for value in values]
        return errors or None

    def _link_error(self, gpu: Any, name: str, link: int) -> int | None:
        value: int | None = self.ask("nvmlDeviceGetNvLinkErrorCounter", gpu, link, LINK_COUNTERS[name])
        if value is None and name in FIELD_LINK_ERRORS:
            value = self.field(gpu, FIELD_LINK_ERRORS[name], link)
        return value

    def fabric(self, gpu: Any) -> list[int | None] | None:
        """State, status, health mask, health summary; by the newest structure that the driver takes."""
        for version in ("v3", "v2"):
            struct = getattr(self.library, f"c_nvmlGpuFabricInfo_{version}_t", None)
            if struct is None:
                continue
            info = struct()
            if self.ask("nvmlDeviceGetGpuFabricInfoV", gpu, byref(info)) is not None:
                return [info.state, info.status, info.healthMask, getattr(info, "healthSummary", None)]
        return None

    def clocks(self, gpu: Any) -> Any:
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        return self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu) if reasons is None else reasons

    def temperature(self, gpu: Any) -> Any:
        return self.ask("nvmlDeviceGetTemperature", gpu, 0)

    def slowdown(self, gpu: Any) -> dict[str, int] | None:
        """Nanoseconds spent slowed down since the driver was loaded, by reason."""
        counts = {name: self.field(gpu, number) for name, number in FIELDS_SLOWDOWN.items()}
        return {name: value for name, value in counts.items() if value is not None} or None

    def pcie(self, gpu: Any) -> list[int | None]:
        """Generation and width now, both at most, and replays."""
        return [
            self.ask("nvmlDeviceGetCurrPcieLinkGeneration", gpu),
            self.ask("nvmlDeviceGetCurrPcieLinkWidth", gpu),
            self.ask("nvmlDeviceGetMaxPcieLinkGeneration", gpu),
            self.ask("nvmlDeviceGetMaxPcieLinkWidth", gpu),
            self.ask("nvmlDeviceGetPcieReplayCounter", gpu),
        ]

    def persistence(self, gpu: Any) -> Any:
        return self.ask("nvmlDeviceGetPersistenceMode", gpu)

    def processes(self, gpu: Any) -> list[int] | None:
        processes = self.ask("nvmlDeviceGetComputeRunningProcesses_v3", gpu)
        if processes is None:  # the unversioned name raises an error of its own on older drivers
            processes = self.ask("nvmlDeviceGetComputeRunningProcesses_v2", gpu)
        return None if processes is None else sorted({process.pid for process in processes})

    def mig(self, gpu: Any) -> Any:
        return self.ask("nvmlDeviceGetMigMode", gpu)

    def activity(self, gpu: Any) -> list[int | None]:
        """What the GPU does now: use, power and its limit, memory, clock. A spinning kernel is busy at low power."""
        rates, memory = self.ask("nvmlDeviceGetUtilizationRates", gpu), self.ask("nvmlDeviceGetMemoryInfo", gpu)
        return [
            None if rates is None else int(rates.gpu),
            self.ask("nvmlDeviceGetPowerUsage", gpu),
            self.ask("nvmlDeviceGetEnforcedPowerLimit", gpu),
            None if memory is None else int(memory.used) >> 20,
            self.ask("nvmlDeviceGetClockInfo", gpu, 1),  # of the SMs
        ]

    def nvlink_kib(self, gpu: Any) -> int | None:
        values = [self.field(gpu, number, ALL_LINKS) for number in FIELDS_LINK_DATA]
        known = [value for value in values if value is not None]
        return sum(known) if known else None


STEPS = (
    "identity",
    "recovery",
    "remap",
    "ecc",
    "links",
    "fabric",
    "processes",
    "histogram",
    "ecc_mode",
    "sram_exceeded",
    "retired",
    "link_speed",
    "link_errors",
    "clocks",
    "temperature",
    "slowdown",
    "pcie",
    "persistence",
    "mig",
    "activity",
    "nvlink_kib",
)


def main() -> None:
    """Write the lines to stdout and leave without waiting for a thread that hangs."""
    lock = threading.Lock()

    def write(**line: Any) -> None:
        with lock:
            os.write(1, dumps(line).encode() + b"\n")

    try:
        import pynvml
    except Exception as error:
        write(step="import", trouble=f"nvidia-ml-py cannot be imported: {type(error).__name__}: {error}")
        return
    nvml = Nvml(pynvml)
    if not _step(pynvml, write, "init", pynvml.nvmlInit):
        return
    _step(pynvml, write, "driver", lambda: nvml.ask("nvmlSystemGetDriverVersion"))
    _step(pynvml, write, "library", lambda: nvml.ask("nvmlSystemGetNVMLVersion"))
    _step(pynvml, write, "cuda", lambda: nvml.ask("nvmlSystemGetCudaDriverVersion"))
    count = _step(pynvml, write, "count", pynvml.nvmlDeviceGetCount)
    threads = [threading.Thread(target=_gpu, args=(nvml, write, index), daemon=True) for index in range(count or 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write(step="end")
    sys.stdout.flush()
    os._exit(0)  # nvmlShutdown is one more call that could hang


def _gpu(nvml: Nvml, write: Callable[..., None], index: int) -> None:
    def line(**more: Any) -> None:
        write(gpu=index, **more)

    handle = _step(nvml.library, line, "handle", lambda: nvml.library.nvmlDeviceGetHandleByIndex(index), value=False)
    if handle is None:
        return
    for step in STEPS:
        _step(nvml.library, line, step, partial(getattr(nvml, step), handle))


def _step(library: Any, write: Callable[..., None], name: str, call: Callable[[], Any], *, value: bool = True) -> Any:
    """Call, write the line, and give the answer back; None after an error."""
    try:
        answer = call()
    except library.NVMLError as error:
        write(step=name, code=error.value, trouble=_text(str(error)))
        return None
    except Exception as error:  # an answer of a shape that the bindings do not expect
        write(step=name, trouble=f"{type(error).__name__}: {error}")
        return None
    write(step=name, value=answer if value else None)
    return True if answer is None else answer


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
