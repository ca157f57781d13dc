"""``hpslurm report`` where Slurm does not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from hpslurm.cli import report

RECORD = '{"type":"run","node":"n1"}\n{"type":"end"}\n'
DOWN = "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n"


def test_a_controller_that_is_down_has_forgotten_nothing(tmp_path: Path, write: Callable[..., Path]) -> None:
    for program in ("scontrol", "sacct"):
        write(f"root/opt/slurm/bin/{program}", DOWN, 0o755)
    write("results/jobs/7/n1.prolog.jsonl", RECORD)
    words = ["7", "--root", str(tmp_path / "root"), "--results", str(tmp_path / "results")]
    first = " ".join(CliRunner().invoke(report.command, words).output.split())
    assert first.startswith("[WARN] Job 7: state unknown, Slurm could not be asked; its nodes' records are here")
    done = CliRunner().invoke(report.command, [*words, "-v"])
    assert 0 == done.exit_code
    assert done.output.startswith("Job 7: state unknown, Slurm could not be asked; its nodes' records are here")
    assert "forgotten" not in done.output
    assert "slurmctld does not answer" in " ".join(done.output.split())
