"""What nvidia-smi lists of broken memory: repairs that wait or failed, and uncorrectable errors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import Event
from hpslurm.scan.gpu_names import pci
from hpslurm.scan.model import evidence

Lines = list[tuple[int, str]]  # line number, text
TABLE = linear.late(r"Uncorr\. ECC|ECC Errors|Remapped|remapped_rows")
_GPU = linear.late(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)")
_REMAP = linear.late(r"(?:Pending|Remapping Failure Occurred)\s*:\s*(?:Yes|[1-9])")
_UNCORRECTABLE = linear.late(
    r"(?:DRAM|SRAM) Uncorrectable[^:]*:\s*([1-9]\d*)|Double Bit ECC\s*:\s*([1-9]\d*)|Total\s*:\s*\d+ uncorrect"
)
_THRESHOLD = linear.late(r"SRAM Threshold Exceeded\s*:\s*Yes")
_OVERVIEW = linear.late(r"\|\s+(\d+)\s+NVIDIA[^|]*\|\s*([0-9A-Fa-f:.]+)\s+\w+\s*\|\s*([1-9]\d*)\s*\|$")


def events(path: str, lines: Lines) -> Iterator[Event]:
    gpu = section = ""
    columns: list[str] = []
    for number, line in lines:
        text = line.strip()
        if match := _GPU.match(text):
            gpu = pci(match[1])
        if text and ":" not in text:
            section = text
        if row := _of_section(section, text):
            yield evidence(row, path, number, text, gpu=gpu)
        if "remapped_rows" in text and "," in text:
            columns = [word.strip() for word in text.split(",")]
        elif columns and text.count(",") == len(columns) - 1 and _waits_or_failed(columns, text):
            yield evidence("smi-remap-list", path, number, text, gpu=pci(text))
        if match := _OVERVIEW.match(text):
            yield evidence("smi-ecc-list", path, number, text, gpu=pci(match[2]))


def _of_section(section: str, text: str) -> str:
    """The row that a line of ``nvidia-smi -q`` stands for, or nothing."""
    remap = "Remapped Rows" in section or section == "Bank Remap Availability Histogram"
    if remap and _REMAP.match(text):
        return "smi-remap-failed" if "Failure" in text else "smi-remap"
    if _UNCORRECTABLE.match(text) and section != "Aggregate":
        return "smi-ecc"
    return "smi-ecc-threshold" if _THRESHOLD.match(text) else ""


def _waits_or_failed(columns: list[str], text: str) -> bool:
    """A row of ``--query-remapped-rows``."""
    values = dict(zip(columns, (word.strip() for word in text.split(",")), strict=False))
    return any(
        re.search(r"remapped_rows\.(?:pending|failure)", name) and value in ("1", "Yes")
        for name, value in values.items()
    )
