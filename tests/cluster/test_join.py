"""The join: a record counts only for the machine and the boot that made it."""

from __future__ import annotations

import pytest

from hpslurm.cluster import gather
from hpslurm.cluster.join import join
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER
from hpslurm.core.records import Record
from hpslurm.sources import hyperpod
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import Queued, SlurmNode, queue_of_text

NOW = 1_800_000_000.0
NEW = "i-0123456789abcdef0"
OLD = "i-0fedcba9876543210"


def record(made, instance=""):
    return Record("n1", "prolog", {"time": made, "instance": instance}, ())


def member(record, **node):
    (one,) = join([SlurmNode("n1", "IDLE", **node)], NOW, records={"n1": record}).members
    return one


def test_a_record_since_the_last_boot_counts():
    made = record(NOW - 100, NEW)
    assert made == member(made, boot_time=int(NOW) - 100, instance_id=NEW).record


def test_boot_time_may_wobble_by_a_second():
    assert member(record(NOW - 100), boot_time=int(NOW) - 98).record is not None
    assert member(record(NOW - 100), boot_time=int(NOW) - 97).record is None


def test_a_record_from_before_the_boot_is_dropped_and_said():
    one = member(record(NOW - 100), boot_time=int(NOW) - 50)
    assert (None, "its record is from before its last boot") == (one.record, one.dropped)


def test_a_record_of_the_instance_before_is_dropped_and_said():
    one = member(record(NOW - 100, OLD), instance_id=NEW)
    assert one.record is None
    assert f"its record is of {OLD}, which was replaced by {NEW}" == one.dropped


def test_hyperpods_own_file_names_the_instance_where_slurm_does_not():
    made = record(NOW, OLD)
    (one,) = join([SlurmNode("n1", "IDLE")], NOW, records={"n1": made}, instance_ids={"n1": NEW}).members
    assert (NEW, None) == (one.instance_id, one.record)


def test_jobs_are_found_on_every_node_of_their_folded_list():
    jobs = [
        Queued(7, "RUNNING", "alice", 1, "all", 3, None, None, "n[1,3-4]", "None"),
        Queued(8, "PENDING", "bob", 2, "all", 1, None, None, "", "Resources"),
    ]
    nodes = [SlurmNode(f"n{number}", "MIXED") for number in range(1, 5)]
    assert [1, 0, 1, 1] == [len(one.jobs) for one in join(nodes, NOW, queue=jobs).members]


@pytest.mark.parametrize("nodes", ["n1[", "n[1-", "n[1-2]]x[", "n[9-1]", "[", "n[1-1000000000]", "n1!n1"])
def test_a_list_of_nodes_that_is_none_puts_the_job_on_no_node_and_leaves_the_others_theirs(nodes):
    text = f"7|RUNNING|alice|1|all|1|Unknown|Unknown|{nodes}|None\n8|RUNNING|bob|2|all|1|Unknown|Unknown|n2|None\n"
    members = join([SlurmNode("n1", "MIXED"), SlurmNode("n2", "MIXED")], NOW, queue=queue_of_text(text)).members
    assert [[], [8]] == [[job.id for job in one.jobs] for one in members]


RESOURCES = """
{"ClusterConfig": {"ClusterName": "ml", "ClusterArn": "arn:aws:sagemaker:us-west-2:123456789012:cluster/abcdefghijkl"},
 "SlurmConfig": {"PrimaryControllerIp": "10.1.0.1", "SecondaryControllerIps": null},
 "InstanceGroups": [
  {"Name": "head", "Instances": [{"InstanceId": "i-00000001", "CustomerIpAddress": "10.1.0.1"}]},
  {"Name": "door", "Instances": [{"InstanceId": "i-00000002", "CustomerIpAddress": "10.1.0.2"}]},
  {"Name": "gpus", "Instances": [{"InstanceId": "i-00000003", "CustomerIpAddress": "10.1.0.3"}]},
  {"Name": "none", "Instances": null}]}
"""


def test_roles_come_from_hyperpods_files(tmp_path):
    (tmp_path / "opt/ml/config").mkdir(parents=True)
    (tmp_path / "opt/ml/config/resource_config.json").write_text(RESOURCES)
    (tmp_path / "opt/ml/config/provisioning_parameters.json").write_text(
        '{"controller_group": "head", "login_group": "door"}'
    )
    layout = hyperpod.layout(Host(str(tmp_path), env={}))
    assert "ml" == layout.cluster
    assert {"ip-10-1-0-1": CONTROLLER, "ip-10-1-0-2": LOGIN, "ip-10-1-0-3": WORKER} == gather.roles(layout)


def test_without_provisioning_parameters_only_the_controllers_address_tells_a_role(tmp_path):
    (tmp_path / "opt/ml/config").mkdir(parents=True)
    (tmp_path / "opt/ml/config/resource_config.json").write_text(RESOURCES)
    assert {"ip-10-1-0-1": CONTROLLER} == gather.roles(hyperpod.layout(Host(str(tmp_path), env={})))
