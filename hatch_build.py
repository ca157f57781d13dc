"""Puts the tables into the wheel as JSON, too (see hpslurm/core/toml.py)."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))

from hpslurm.core import toml


class TablesAsJson(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout, whose tables somebody writes
            return
        self.made = tempfile.TemporaryDirectory()
        for path in sorted(Path(self.root, "hpslurm/tables").glob("*.toml")):
            file = Path(self.made.name, f"{path.stem}.json")
            file.write_text(json.dumps(toml.loads(path.read_text("utf-8"))), "utf-8")
            build_data["force_include"][str(file)] = f"hpslurm/tables/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.made.cleanup()
