"""Compares hpslurm/tables with the sources that it was read from: what is new, gone, or called otherwise.

    make facts                                       what is installed (botocore), and how old each table is
    make facts SOURCES="nccl=../nccl plugin=../aws-ofi-nccl@v1.21.1"

A source is a checkout or a bare repository, at the tag behind the @ (else its newest commit); of PyTorch its wheel
does as well. Which ones, and what to do with what is printed: docs/maintaining.md.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from hpslurm.cluster import slurm_nodes
from hpslurm.core import toml
from hpslurm.core.values import dataclass
from hpslurm.job import nccl_env
from hpslurm.node import gpudirect, instance
from hpslurm.node.versions import order

TABLES = os.path.join(os.path.dirname(toml.__file__), "../tables")
OLD = 100  # days after which a table should be compared again: a quarter
COMPARED = re.compile(r"^# Compared (\d{4}-\d\d-\d\d)", re.MULTILINE)
# Tables whose rows were read from somebody else's source.
FACTS = (
    "bandwidth",
    "gpu_kernel",
    "instances",
    "nccl_env",
    "nvlink4",
    "nvlink5",
    "reasons",
    "sxid",
    "versions",
    "xid",
)


@dataclass(frozen=True)
class Source:
    """A repository at a commit, read without touching its work tree."""

    folder: str
    commit: str = "HEAD"

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", self.folder, *words], capture_output=True, text=True, errors="replace")
        return done.stdout

    def must_exist(self) -> None:
        """Git finds nothing at a commit that is not there, and everything would count as gone."""
        if self.folder.endswith(".whl") and zipfile.is_zipfile(self.folder):
            return
        if not self.git("rev-parse", "--verify", "-q", f"{self.commit}^{{commit}}"):
            raise SystemExit(f"{self.folder} has no commit {self.commit}: is it a repository, and has it the tag?")

    def read(self, path: str) -> str:
        text = self.git("show", f"{self.commit}:{path}")
        if not text:
            raise SystemExit(f"{self.folder} has no {path} at {self.commit}: is it the right repository?")
        return text

    def grep(self, pattern: str, *paths: str) -> Iterator[str]:
        """What the expression matches, without file names."""
        yield from self.git("grep", "-h", "-o", "-E", pattern, self.commit, "--", *paths).splitlines()


def differences(what: str, listed: Iterable[str], there: Iterable[str]) -> Iterator[str]:
    """Lines for a person: what the source has and the table has not, and the other way round."""
    listed, there = set(listed), set(there)
    for word, names in (("new", there - listed), ("gone", listed - there)):
        if names:
            yield f"{what}: {len(names)} {word}: {' '.join(sorted(names))}"


# NVIDIA's driver

_XID = re.compile(r"^#define\s+([A-Z0-9_]+)\s+\((\d{1,5})\)", re.MULTILINE)
_SXID = re.compile(r"^\s*NVSWITCH_ERR_([A-Z0-9_]+)\s*=\s*(\d{5})\b", re.MULTILINE)
_NO_XIDS = ("ROBUST_CHANNEL_ERROR_RECOVERY_LEVEL", "ROBUST_CHANNEL_LAST_ERROR", "RESERVED_XID")
# Codes that NVIDIA's catalog calls otherwise than its header; the table follows the catalog.
CATALOG = {30, 63, 64, 152, 153, 162, 163, 164, 165, 166, 170, 174}


def kernel_modules(source: Source) -> Iterator[str]:
    """Codes of the header. It lacks some that the catalog has, so none is gone because it is not here."""
    text = source.read("src/common/sdk/nvidia/inc/nverror.h")
    there = {int(code): name for name, code in _XID.findall(text) if not name.startswith(_NO_XIDS) and int(code)}
    here = {row["code"]: row["name"] for row in toml.table("xid")}
    yield from differences("XIDs", map(str, here), map(str, here.keys() | there.keys()))
    for code in sorted(here.keys() & there.keys() - CATALOG):
        if here[code] != there[code]:
            yield f"XIDs: {code} is {there[code]} there, {here[code]} here"
    text = source.read("src/common/nvswitch/interface/ctrl_dev_nvswitch.h")
    codes = {code for _, code in _SXID.findall(text) if not code.endswith("000")}  # which begin a unit
    listed = {str(row["code"]) for row in toml.table("sxid")}
    yield from differences("SXIDs", listed, listed | codes)


# NCCL, AWS's plugin, PyTorch

_READS = r'(NCCL_(CXX_)?PARAM[A-Z_]*\([^"]*|ncclGetEnv\(|getenv\()"(NCCL_)?[A-Z0-9_]+"'
_WORD = re.compile(r'"(?:NCCL_)?([A-Z0-9_]+)"')


def nccl(source: Source) -> Iterator[str]:
    there = {match[1] for line in source.grep(_READS, "src") if (match := _WORD.search(line))}
    known = nccl_env.names_of("NCCL_")
    new = {name for name in there if name not in known and not name.startswith(nccl_env.beginnings("NCCL_"))}
    new -= {"CUDA_LAUNCH_BLOCKING"}  # of CUDA; NCCL looks at it, too
    new = {name for name in new if not name.startswith("DOCA_")}
    yield from differences("NCCL names", (), new)
    newest = order(source.git("describe", "--tags", "--match", "v2*", source.commit).strip())
    present = {name for name, since in map(str.split, nccl_env.table()["present"]) if order(since) <= newest[:3]}
    said = {name: rf'(NCCL_|")({name})($|[^A-Z0-9_])' for name in present - there}
    missing = {name for name, pattern in said.items() if not source.git("grep", "-l", "-E", pattern, source.commit)}
    yield from differences("NCCL names", missing, ())


def plugin(source: Source) -> Iterator[str]:
    params = source.read("include/nccl_ofi_param.h")
    there = set(re.findall(r'OFI_NCCL_PARAM[A-Z_]*\([^"#]*?"([A-Z0-9_]+)"', params))
    tables = nccl_env.table()
    only_refused = {name for name in tables["plugin_gone"] if "BOUNCE" in name}
    yield from differences("plugin's names", {*tables["plugin_present"], *only_refused} - {"FORCE_PRODUCT_NAME"}, there)
    platforms = _PLATFORM.findall(source.read("src/platform-aws.cpp"))
    for name in sorted(instance.table()):
        wanted = next((required == "true" for each, regex, required in platforms if _is(name, each, regex)), False)
        if wanted != name.startswith(gpudirect.REQUIRED):
            yield f"plugin's platforms: GPUDirect on {name}: {wanted} there, {not wanted} in node/gpudirect.py"


_PLATFORM = re.compile(r'\.name = "([^"]*)",.*?\.regex = (NULL|"[^"]*"),.*?\.gdr_required = (true|false)', re.DOTALL)


def _is(name: str, platform: str, regex: str) -> bool:
    return name == platform if regex == "NULL" else bool(re.search(regex.strip('"').replace("\\\\", "\\"), name))


_TORCH = r"\bTORCH_(NCCL|FR)_[A-Z0-9_]+"


def pytorch(source: Source) -> Iterator[str]:
    """Names of its process groups, from a checkout or from a released wheel."""
    wheel = source.folder.endswith(".whl")
    there = set(_of_wheel(source.folder) if wheel else source.grep(_TORCH, "torch/csrc/distributed/c10d"))
    prefixes = ("TORCH_NCCL_", "TORCH_FR_")
    listed = {f"{prefix}{name}" for prefix in prefixes for name in nccl_env.names_of(prefix)}
    yield from differences("PyTorch's names", listed, there)


def _of_wheel(path: str) -> Iterator[str]:
    """What its headers name, and what stands in its libraries as a string of its own."""
    string = re.compile(rb"\0(TORCH_(?:NCCL|FR)_[A-Z0-9_]+)(?=\0)")
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if "/distributed/c10d/" in name and name.endswith((".h", ".hpp")):
                yield from (match[0] for match in re.finditer(_TORCH, wheel.read(name).decode(errors="replace")))
            elif re.fullmatch(r"torch/lib/libtorch_(?:cpu|cuda)\.so", name):
                yield from (found.decode() for found in string.findall(wheel.read(name)))


# Slurm


def slurm(source: Source) -> Iterator[str]:
    flags = set(
        re.findall(r"\{ NODE_(?:STATE_)?[A-Z_]+, \"([A-Z_]+)\" \}", source.read("src/common/slurm_protocol_defs.c"))
    )
    bases = slurm_nodes.GOOD_BASES | {"DOWN", "ERROR", "FUTURE", "UNKNOWN", "RESUME"}
    yield from differences("Slurm's node flags", (), flags - bases - slurm_nodes.KNOWN_FLAGS)
    calls = r'(set_node_reason\([^,]*, |drain_nodes\([^,]*, |->reason = xstrdup\()"[^"%]+"'
    said = {line.rsplit('"', 2)[1] for line in source.grep(calls, "src")}
    patterns = [re.compile(row["pattern"]) for row in toml.table("reasons")]
    unread = {f"'{text}'" for text in said if not any(pattern.fullmatch(text) for pattern in patterns)}
    yield from differences("Slurm's reasons", (), unread)


# What is installed


def botocore() -> Iterator[str]:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    types = {name.removeprefix("ml.") for name in model.shape_for("ClusterInstanceType").enum}
    gpu = {name for name in types if re.match(r"(?:gr?[4-9]|p\d)", name)}
    yield from differences("HyperPod's types with GPUs", instance.table(), gpu)


def ages(today: date) -> Iterator[str]:
    """Tables that nobody compared for a quarter."""
    for name in FACTS:
        with open(os.path.join(TABLES, f"{name}.toml"), encoding="utf-8") as file:
            match = COMPARED.search(file.read())
        if match is None:
            yield f"{name}.toml: its head does not say when it was compared"
        elif (today - date.fromisoformat(match[1])).days > OLD:
            yield f"{name}.toml: compared last on {match[1]}"


SOURCES: dict[str, Callable[[Source], Iterator[str]]] = {
    "kernel-modules": kernel_modules,
    "nccl": nccl,
    "plugin": plugin,
    "pytorch": pytorch,
    "slurm": slurm,
}


def report(arguments: Iterable[str], today: date) -> Iterator[str]:
    given: dict[str, Source] = {}
    for argument in arguments:
        name, _, where = argument.partition("=")
        if name not in SOURCES or not where:
            raise SystemExit(f"{argument}: one of {', '.join(f'{one}=FOLDER[@TAG]' for one in SOURCES)} is wanted")
        folder, _, commit = where.partition("@")
        given[name] = Source(folder, commit or "HEAD")
    yield from botocore()
    for name, compare in SOURCES.items():
        if name in given:
            given[name].must_exist()
            yield from compare(given[name]) or ()
        else:
            yield f"{name}: not compared, no checkout was named"
    yield from ages(today)


if __name__ == "__main__":
    lines = list(report(sys.argv[1:], date.today()))
    print("\n".join(lines) or "all as in the sources")
