"""Whatever stands in /proc, sysfs and a program's output: never a crash, and never a pass on rubbish.

Every file that a probe reads of the saved p5 is cut off, filled with other bytes, or given
absurd numbers. The probe may say unknown, or find something; what it says names the file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, UNKNOWN, Result, run
from hpslurm.sources.host import Host
from tests.test_hosts import build, probes

MODULES = dict(probes())
DEVICE = "/sys/class/infiniband/rdmap79s0"
# probe: files that decide, so that rubbish in one must not pass; and files that do not decide alone
INPUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "acs": ((), ("/sys/bus/pci/devices/0000:10:00.0/class", "/sys/bus/pci/devices/0000:10:00.0/config")),
    "clock": (("/commands/chronyc.txt", "/proc/uptime"), ()),
    "disk": (("/proc/self/mounts",), ("/sys/devices/virtual/dmi/id/product_name",)),
    "dstate": ((), ("/proc/1/stat", "/proc/1/comm", "/proc/1/wchan", "/proc/1/status")),
    "efa": (("/commands/fi_info.txt", f"{DEVICE}/device/vendor", f"{DEVICE}/device/device"), ("/proc/uptime",)),
    "efa_counters": ((f"{DEVICE}/ports/1/hw_counters/tx_bytes", f"{DEVICE}/hw_counters/cmds_err"), ()),
    "efa_driver": ((f"{DEVICE}/device/vendor",), ("/sys/module/efa/version",)),
    "efa_kernel": (("/dev/kmsg", "/proc/stat"), ()),
    "firewall": (("/proc/net/ip_tables_names",), ("/commands/nft.txt", "/commands/iptables_save.txt")),
    "governor": (("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",), ()),
    "gpudirect": (("/proc/sys/kernel/osrelease",), ("/proc/driver/nvidia/version", f"{DEVICE}/device/p2p")),
    "hugepages": (("/proc/meminfo",), ()),
    "iommu": (("/sys/kernel/iommu_groups/7/type",), ("/sys/kernel/iommu_groups/7/devices/0000:53:00.0/vendor",)),
    "kernel_faults": (("/dev/kmsg", "/proc/stat"), ()),
    "logind": ((), ("/etc/systemd/logind.conf",)),
    "memlock": (("/proc/2310/limits",), ("/proc/2310/comm", "/proc/2310/stat")),
    "mtu": (("/sys/class/net/ens32/mtu", "/sys/class/net/ens32/type"), ("/sys/class/net/ens32/operstate",)),
    "munge": (("/proc/net/unix",), ()),
    "names": (("/proc/sys/kernel/hostname", "/commands/getent-ip-10-1-0-3.txt"), ()),
    "nccl_env": ((), ("/etc/nccl.conf", "/sys/devices/virtual/dmi/id/product_name")),
    "ofi_plugin": (("/opt/amazon/ofi-nccl/lib64/libnccl-net.so",), ()),
    "oom": (("/dev/kmsg", "/proc/stat"), ()),
    "rendezvous": (("/proc/sys/net/ipv4/ip_local_port_range",), ()),
    "shm": (("/proc/self/mounts", "/commands/df.txt"), ()),
    "shm_stale": ((), ("/proc/1/maps", "/proc/self/mountinfo")),
    "stack": (("/proc/2310/limits",), ()),
    "version_pairs": ((), ("/opt/amazon/efa_installed_packages", "/usr/lib64/libnccl.so.2")),
    "versions": ((), ("/proc/driver/nvidia/version", "/usr/local/cuda/version.json", "/sys/module/efa/version")),
}
# What the healthy p5 does not have, so that the probe would have nothing to read
MORE = {
    "/sys/bus/pci/devices/0000:10:00.0/class": "0x060400\n",
    "/sys/bus/pci/devices/0000:10:00.0/config": "\0" * 4096,
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
    "/sys/kernel/iommu_groups/7/type": "identity\n",
    "/sys/kernel/iommu_groups/7/devices/0000:53:00.0/vendor": "0x10de\n",
    "/proc/net/ip_tables_names": "filter\n",
    "/commands/iptables_save.txt": "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n",
    "/dev/shm/nccl-aB3dEf": "x",
    "/proc/1/maps": "7f00-7f01 rw-s 0 00:1b 77 /dev/shm/nccl-aB3dEf\n",
}
STEP = ("nccl_env", "rendezvous")
PLACES = [(name, path) for name, (decide, others) in INPUTS.items() for path in (*decide, *others)]
RUBBISH = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=120).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"", b"\n", b"\0" * 64, b"\xff" * 64, b"-1\n", b"9" * 5000, b"nan\n", b"1e999\n", "²³\n".encode()]
    ),
)


@pytest.fixture(scope="module")
def p5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bad") / "p5"
    build("p5-healthy", root)
    for path, text in MORE.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


def look(root: Path, name: str) -> Result:
    env = {"MASTER_ADDR": "ip-10-1-0-3", "MASTER_PORT": "29500", "NCCL_DEBUG": "WARN"} if name in STEP else {}
    return run(name, MODULES[name], Host(str(root), env=env, in_hook=name not in STEP, seconds=5), Policy())


class Changed:
    """One file with other bytes, put back afterwards. The file may be a hard link: it is replaced, not written."""

    def __init__(self, root: Path, path: str, data: bytes) -> None:
        self.target, self.data = root / path.lstrip("/"), data

    def __enter__(self) -> None:
        self.kept = self.target.with_name(self.target.name + ".kept")
        self.there = self.target.exists()
        if self.there:
            self.target.rename(self.kept)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.target.write_bytes(self.data)

    def __exit__(self, *_: object) -> None:
        self.target.unlink()
        if self.there:
            self.kept.rename(self.target)


def checked(result: Result, decides: bool) -> None:
    told = f"{result.outcome}: {result.note}"
    assert not re.match(r"\w*(Error|Exception|Iteration)\b", result.note), told  # a reason, not a traceback's last line
    assert result.outcome != UNKNOWN or result.note, told
    for finding in result.findings:
        assert finding.detail.isprintable() or "\n" not in finding.detail, told
    if decides:
        assert result.outcome != PASS, told


def test_every_probe_over_this_machine_is_tried() -> None:
    assert sorted(MODULES) == sorted(INPUTS) or set(INPUTS) <= set(MODULES)


def test_all_of_them_look_well_before_anything_is_changed(p5: Path) -> None:
    assert dict.fromkeys(INPUTS, PASS) == {name: look(p5, name).outcome for name in INPUTS}


@pytest.mark.parametrize(("name", "path"), PLACES)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=RUBBISH)
def test_rubbish_is_unknown_or_found_and_never_a_crash(p5: Path, name: str, path: str, data: bytes) -> None:
    with Changed(p5, path, data):
        # a number may be right by chance, and emptiness has its own test
        said = data.strip(b" \0\n\t\r\x0b\x0c")
        checked(look(p5, name), path in INPUTS[name][0] and bool(said) and not said.isdigit())


@pytest.mark.parametrize(("name", "path"), PLACES)
def test_a_file_that_is_cut_off_anywhere_is_no_crash(p5: Path, name: str, path: str) -> None:
    target = p5 / path.lstrip("/")
    whole = target.read_bytes() if target.exists() else b""
    for size in sorted({0, 1, 2, len(whole) // 3, len(whole) // 2, max(0, len(whole) - 2)}):
        with Changed(p5, path, whole[:size]):
            checked(look(p5, name), False)


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, (decide, _) in INPUTS.items() for path in decide if name != "firewall"]
)
def test_an_empty_file_does_not_pass(p5: Path, name: str, path: str) -> None:
    with Changed(p5, path, b""):
        checked(look(p5, name), True)


def test_ten_mebibytes_of_kernel_log_are_read_and_the_one_line_found(p5: Path) -> None:
    lines = [f"6,{number},{number * 100},-;usb 1-1: new device number {number % 128}\n" for number in range(220_000)]
    lines.append("3,220000,86000000000,-;Out of memory: Killed process 4711 (python3) total-vm:1kB\n")
    data = "".join(lines).encode()
    assert len(data) > 10 << 20
    with Changed(p5, "/dev/kmsg", data):
        assert ["oom-kill"] == [finding.rule.id for finding in look(p5, "oom").findings]
        assert PASS == look(p5, "kernel_faults").outcome


@pytest.fixture(scope="module")
def locked(p5: Path) -> Iterator[Path]:
    """The same machine in a folder that another user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="hpslurm-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(p5, folder / "p5", symlinks=True)
    yield folder / "p5"
    shutil.rmtree(folder)


def as_nobody(root: Path) -> dict[str, list[str]]:
    """Outcome and note of every probe, looked at by a child that gave up root (its modules are loaded already)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = {name: look(root, name) for name in INPUTS}
            told = {name: [result.outcome, result.note] for name, result in found.items()}
            os.write(theirs, json.dumps(told).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        data = answer.read()
    os.waitpid(child, 0)
    found: dict[str, list[str]] = json.loads(data)
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look as another user")
def test_what_an_ordinary_user_may_not_read_is_unknown_with_the_file(locked: Path) -> None:
    for decide, _ in INPUTS.values():
        for path in decide:
            target = locked / path.lstrip("/")
            if target.exists() and not path.startswith("/commands/"):
                target.unlink()  # a link into the other tree
                target.write_bytes(b"x")
                target.chmod(0)
    found = as_nobody(locked)
    refused = {name for name, (outcome, note) in found.items() if outcome == UNKNOWN and "permission denied" in note}
    readable = {"acs", "dstate", "logind", "nccl_env", "shm_stale", "version_pairs", "versions", "memlock", "stack"}
    assert set(INPUTS) - readable - {"ofi_plugin"} <= refused, found
    assert PASS not in {found[name][0] for name in INPUTS if INPUTS[name][0] and name != "ofi_plugin"}, found
