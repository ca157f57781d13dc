from __future__ import annotations

import pytest

from hpslurm.cluster.aws import security_groups
from hpslurm.cluster.aws.security_groups import Facts, Interface, SgRule
from hpslurm.cluster.model import LOGIN
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import replace
from tests.cluster.aws.test_hyperpod import HEALTHY, ONE, WORKERS

A, B, SHARED = "sg-0aaaaaaaaaaaaaaaa", "sg-0bbbbbbbbbbbbbbbb", "sg-0cccccccccccccccc"
IN, OUT = False, True
SELF = (SgRule(A, IN, "-1", A), SgRule(A, OUT, "-1", A))
OPEN = SgRule(A, OUT, "-1", range="0.0.0.0/0")
ENOUGH = (*SELF, OPEN)
GROUP = replace(WORKERS, security_groups=(A,), subnets=("subnet-1",))
OTHER = replace(GROUP, name="worker-group-2", security_groups=(B,))


def found(rules, groups=(GROUP,), **more):
    cluster = replace(HEALTHY, groups=groups)
    return list(security_groups.judge(Facts(cluster, tuple(rules), **more), Policy()))


def ids(*args, **kwargs):
    return [(finding.rule.id, finding.subject) for finding in found(*args, **kwargs)]


def test_a_group_that_names_itself_both_ways_is_enough():
    assert [] == ids(ENOUGH)


def test_without_the_inbound_rule_efa_is_blocked():
    assert [("sg-no-inbound", "worker-group-1")] == ids([SELF[1], OPEN])


def test_without_the_outbound_rule_efa_is_blocked():
    assert [("sg-no-outbound", "worker-group-1")] == ids([SELF[0], SgRule(A, OUT, "tcp", range="0.0.0.0/0")])


def test_an_open_range_instead_of_the_group_rule_does_not_count():
    one = found([SELF[0], OPEN])[0]
    assert "sg-no-outbound" == one.rule.id
    assert "the open address range that is there does not count for EFA" in one.detail


def test_a_new_security_group_with_only_the_open_outbound_rule_fails_both_ways():
    assert ["sg-no-inbound", "sg-no-outbound"] == [rule for rule, _ in ids([OPEN])]


@pytest.mark.parametrize(
    "instead",
    [
        SgRule(A, IN, "tcp", A, ports=(0, 65535)),
        SgRule(A, IN, "-1", range="10.1.0.0/20"),
        SgRule(A, IN, "-1", range="pl-0123456789abcdef0"),
        SgRule(A, IN, "-1", B),
    ],
    ids=["tcp only", "address range", "prefix list", "another group"],
)
def test_what_is_there_instead_does_not_count_and_is_shown(instead):
    one = found([SELF[1], OPEN, instead])[0]
    assert "sg-no-inbound" == one.rule.id
    assert [str(instead)] == [seen.text for seen in one.evidence]


def test_rules_of_all_groups_on_an_interface_add_up():
    two = replace(GROUP, security_groups=(A, SHARED))
    rules = [
        SgRule(A, OUT, "-1", range="0.0.0.0/0"),
        SgRule(SHARED, IN, "-1", SHARED),
        SgRule(SHARED, OUT, "-1", SHARED),
    ]
    assert [] == ids(rules, groups=(two,))


def test_a_rule_may_name_the_other_group_of_the_same_interface():
    two = replace(GROUP, security_groups=(A, SHARED))
    rules = [
        SgRule(A, OUT, "-1", SHARED),
        SgRule(A, IN, "-1", SHARED),
        OPEN,
        SgRule(SHARED, IN, "tcp", range="10.0.0.0/8"),
    ]
    assert [] == ids(rules, groups=(two,))


def test_a_group_that_reaches_only_itself_is_worth_a_line():
    assert [("sg-no-way-out", "worker-group-1")] == ids(SELF)


B_SELF = (SgRule(B, IN, "-1", B), SgRule(B, OUT, "-1", B), SgRule(B, OUT, "-1", range="0.0.0.0/0"))


def test_two_groups_that_do_not_name_each_other_cannot_share_a_job():
    one = found([*ENOUGH, *B_SELF], groups=(GROUP, OTHER))
    assert [("sg-groups-apart", "worker-group-1")] == [(item.rule.id, item.subject) for item in one]
    assert 5 == len(one[0].suggestions)  # look, and four rules


def test_rules_in_one_direction_only_are_not_enough():
    cross = [SgRule(A, OUT, "-1", B), SgRule(B, IN, "-1", A), SgRule(B, OUT, "-1", A)]
    one = found([*ENOUGH, *B_SELF, *cross], groups=(GROUP, OTHER))[0]
    assert one.detail.endswith(": worker-group-1 has no inbound rule from worker-group-2")


def test_rules_in_both_directions_are_enough():
    cross = [SgRule(A, OUT, "-1", B), SgRule(B, IN, "-1", A), SgRule(B, OUT, "-1", A), SgRule(A, IN, "-1", B)]
    assert [] == ids([*ENOUGH, *B_SELF, *cross], groups=(GROUP, OTHER))


def test_login_nodes_and_types_without_efa_need_no_rule():
    assert [] == ids([], groups=(replace(GROUP, role=LOGIN), replace(GROUP, type="m5.4xlarge")))


def test_a_security_group_of_which_nothing_came_back_is_unknown_and_no_fault():
    with pytest.raises(Unknown, match=f"no rule of {A} came back"):
        found([])


def test_a_security_group_without_rules_on_a_real_interface_blocks():
    interface = Interface("10.1.0.1", (A,))
    assert ["sg-no-inbound", "sg-no-outbound"] == [rule for rule, _ in ids([], interfaces=(interface,))]


def test_a_list_of_rules_that_was_cut_is_not_judged():
    with pytest.raises(Unknown, match="only 1000 read"):
        found([], partial="only 1000 read")


def test_an_interface_with_other_groups_than_configured_is_told_of_its_node():
    group = replace(GROUP, name="worker-group-1")
    odd, right = Interface("10.1.0.1", (B,)), Interface("10.1.0.1", (A,))
    assert [("sg-interface-differs", "ip-10-1-0-1")] == ids(ENOUGH, (group,), interfaces=(odd,), instances=(ONE,))
    assert [] == ids(ENOUGH, (group,), interfaces=(right,), instances=(ONE,))


def test_the_suggested_rule_names_the_group_itself():
    commands = [step.command for step in found([SELF[1], OPEN])[0].suggestions]
    wanted = (
        f"aws ec2 authorize-security-group-ingress --group-id {A} --ip-permissions "
        f'\'[{{"IpProtocol":"-1","UserIdGroupPairs":[{{"GroupId":"{A}"}}]}}]\' --region us-west-2'
    )
    assert wanted in commands


def test_a_rule_is_read_from_the_flat_list():
    raw = {"GroupId": A, "IsEgress": True, "IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "CidrIpv6": "::/0"}
    assert SgRule(A, OUT, "tcp", range="::/0", ports=(988, 988)) == security_groups.parse_rule(raw)
    assert "tcp 988 to ::/0" == str(security_groups.parse_rule(raw))
