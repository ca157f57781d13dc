"""A bundle on disk: one tar.gz with a manifest and hashes, the same bytes for the same parts, whole or not at all.

The limit is on the unpacked size, which can be told before anything is written. What does not fit is cut in a
fixed order (``CUT``): logs to their beginning and end, then records and Slurm's long lists are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpslurm.core import whole_file
from hpslurm.core.text import size
from hpslurm.core.values import dataclass, field, replace
from hpslurm.job.logs import shares

SCHEMA = 1
LOGS, RECORDS, SLURM, KEPT = "logs", "records", "slurm", "kept"
CUT = (LOGS, RECORDS, SLURM)  # in this order; KEPT is never cut
LEAST_OF_A_LOG = 4096  # bytes; what is less says nothing


@dataclass(frozen=True)
class Part:
    """One file. ``left_out`` counts bytes that are not in it, ``masked`` what each rule hid in it."""

    name: str
    text: str
    source: str
    kind: str = KEPT
    left_out: int = 0
    note: str = ""
    masked: Mapping[str, int] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    def described(self) -> dict[str, Any]:
        data = self.data
        return {
            "name": self.name,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "source": self.source,
            "masked": dict(sorted(self.masked.items())),
            "left_out": self.left_out,
            "note": self.note,
        }


def shortened(text: str, most: int, before: int = 0) -> tuple[str, int]:
    """Whole lines from the beginning and the end, at most so many bytes; and how many are left out of it in all."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text, before
    half = max(0, most - 120) // 2  # room for the line that says so
    head = data[: data.rfind(b"\n", 0, half) + 1 or half]
    begin = data.find(b"\n", len(data) - half) + 1
    tail = data[begin or len(data) - half :]
    left_out = before + len(data) - len(head) - len(tail)
    return joined(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), left_out), left_out


def joined(head: str, tail: str, left_out: int) -> str:
    end = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{end}[hpslurm bundle: {left_out} bytes are left out here]\n{tail}"


def fitted(parts: Sequence[Part], limit: int) -> tuple[list[Part], list[tuple[str, str]]]:
    """The parts that fit, and what had to be left out altogether."""
    kept, missing = list(parts), []
    for kind in CUT:
        too_much = sum(len(part.data) for part in kept) - limit
        if too_much <= 0:
            break
        these = [part for part in kept if part.kind == kind]
        room = max(0, sum(len(part.data) for part in these) - too_much)
        if kind == LOGS:
            given = dict(
                zip((part.name for part in these), shares([len(part.data) for part in these], room), strict=True)
            )
        else:  # a list that is cut in the middle is no list: small ones first, whole
            given, left = {}, room
            for part in sorted(these, key=lambda part: (len(part.data), part.name)):
                given[part.name] = len(part.data) if len(part.data) <= left else 0
                left -= given[part.name]
        cut = [_cut(part, given[part.name]) if part.name in given else part for part in kept]
        missing += [
            (old.name, f"{size(len(old.data))} do not fit into {size(limit)}; pass a larger --max-size")
            for old, new in zip(kept, cut, strict=True)
            if new is None
        ]
        kept = [part for part in cut if part is not None]
    return kept, missing


def _cut(part: Part, most: int) -> Part | None:
    if len(part.data) <= most:
        return part
    if part.kind != LOGS or most < LEAST_OF_A_LOG:
        return None
    text, left_out = shortened(part.text, most, part.left_out)
    return replace(part, text=text, left_out=left_out)


def masked(parts: Iterable[Part]) -> dict[str, int]:
    """How much each rule hid in all of them."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.masked)
    return dict(sorted(total.items()))


def sums(files: Iterable[Mapping[str, Any]]) -> str:
    """As ``sha256sum -c`` reads them."""
    return "".join(f"{file['sha256']}  {file['name']}\n" for file in files)


def pack(parts: Iterable[Part], manifest: Mapping[str, Any], folder: str, when: int) -> bytes:
    """The tar.gz. Everything is below ``folder``: names in order, one time, owner 0, no links."""
    described = Part("manifest.json", json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "hpslurm bundle")
    files = sorted([*parts, described], key=lambda part: part.name)
    files.append(Part("SHA256SUMS", sums(part.described() for part in files), "hpslurm bundle"))
    out = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for part in sorted(files, key=lambda each: each.name):
            data = part.data
            about = tarfile.TarInfo(f"{folder}/{part.name}")
            about.size, about.mtime, about.mode = len(data), when, 0o644
            tar.addfile(about, io.BytesIO(data))
    return out.getvalue()


def write(files: Mapping[str, bytes], *, force: bool = False) -> None:
    """All of them or none, readable by us alone. Raises OSError; FileExistsError unless ``force``."""
    done: list[str] = []
    try:
        for path, data in files.items():
            whole_file.write(path, data, 0o600, new=not force)
            done.append(path)
    except BaseException:
        for path in done:  # one without the other is of no use
            os.unlink(path)
        raise
