"""The tables of instance types against the list of types that HyperPod takes, as botocore has it."""

from __future__ import annotations

import re

import botocore.session

from hpslurm.core import toml
from hpslurm.node import instance

_NVIDIA = re.compile(r"(?:gr?[4-9]|p\d)[a-z]*(?:-[a-z0-9]+)?\.\w+")
TYPES = botocore.session.get_session().get_service_model("sagemaker").shape_for("ClusterInstanceType").enum
WITH_GPU = {name for name in (one.removeprefix("ml.") for one in TYPES) if _NVIDIA.fullmatch(name)}


def test_every_type_with_nvidia_gpus_that_hyperpod_takes_is_in_both_tables() -> None:
    assert 50 < len(WITH_GPU)
    assert set() == WITH_GPU - set(instance.table())
    assert set() == WITH_GPU - {row["type"] for row in toml.whole("bandwidth")["limits"]}


def test_no_type_is_listed_that_hyperpod_does_not_take() -> None:
    assert set() == set(instance.table()) - WITH_GPU


def test_a_type_whose_devices_may_be_attached_in_two_ways_is_counted_by_the_fewer() -> None:
    assert instance.Expected(4, 4) == instance.table()["p6e-gb200.36xlarge"]
