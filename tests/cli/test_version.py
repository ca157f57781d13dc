"""``--version``: ours, and what is around it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from hpslurm import __version__
from hpslurm.cli import group
from hpslurm.setup import versions as version


def test_ours_comes_first_and_python_s_after_it():
    done = CliRunner().invoke(group, ["--version"])
    assert (0, f"hpslurm {__version__}") == (done.exit_code, done.output.splitlines()[0])
    assert re.search(r"^  Python: +3\.\d+\.\d+$", done.output, re.M)


def test_what_a_machine_has_is_named_and_what_it_lacks_is_not_found(host_with):
    installed = "# EFA installer version: 1.43.2\nlibfabric1-aws_2.1.0amzn5.0_amd64.deb\n"
    host = host_with(
        {
            "/proc/sys/kernel/osrelease": "6.8.0-aws\n",
            "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Kernel Module  570.133.20  Sun\n",
            "/opt/amazon/efa_installed_packages": installed,
            "/commands/scontrol_version.txt": "slurm 24.11.5\n",
        },
        env={},
    )
    found = dict(version.around(host))
    wanted = {"Slurm": "24.11.5", "NVIDIA driver": "570.133.20", "libfabric": "2.1.0amzn5.0", "EFA installer": "1.43.2"}
    assert wanted == {name: found[name] for name in wanted}
    assert "  CUDA toolkit:    not found" in list(version.lines(host))


def test_a_machine_with_nothing_is_no_error(host_with):
    assert "" == dict(version.around(host_with({}, env={})))["Slurm"]


def test_where_no_slurmd_is_scontrol_is_asked(host_with):
    files = {"/commands/slurmd_version.txt": "error: no configuration\n", "/commands/slurmd_version.status": "1\n"}
    host = host_with({**files, "/commands/scontrol_version.txt": "slurm 25.05.1\n"}, env={})
    assert "25.05.1" == version.slurm_version(host)


@pytest.mark.skipif(not shutil.which("slurmd", path="/usr/sbin"), reason="needs Slurm's programs")
def test_slurm_s_version_needs_no_controller():
    asked = subprocess.run(["/usr/sbin/slurmd", "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    done = CliRunner().invoke(group, ["--version"])
    assert asked == re.search(r"Slurm: +(\S+)", done.output)[1]
