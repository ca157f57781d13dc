"""How much is read of a folder that somebody named."""

from __future__ import annotations

import os
from pathlib import Path

from hpslurm.scan import read


def test_twenty_thousand_files_of_a_folder_are_read(tmp_path: Path) -> None:
    for number in range(20_001):
        os.close(os.open(tmp_path / str(number), os.O_CREAT))
    assert 20_000 == len(read.files_below(str(tmp_path)))
