"""NICs by GPU out of NCCL's lines, whole and damaged."""

import pytest

from hpslurm.nccl_tests import view
from hpslurm.scan import nccl_rails
from hpslurm.scan import nccl_tests as reading
from hpslurm.scan.nccl_rails import Rails
from tests.fake import nccl_tests as fake

HOSTS = ("ip-10-1-0-1", "ip-10-1-0-2")
GPUS = 8


def lines_of(model=None, hosts=HOSTS, gpus=GPUS):
    """What all ranks of a run say."""
    said = []
    for node, host in enumerate(hosts):
        for gpu in range(gpus):
            rank = node * gpus + gpu
            said += fake.nccl_lines(
                host, 4000 + rank, rank, gpu, gpus, gpus * len(hosts), fake.nics_of(host, model or {})
            )
    return said


def rails_of(lines):
    log = reading.NcclLog()
    reading.read_nccl_lines(lines, log)
    return log.rails


def said(text, host="ip-10-1-0-1"):
    rails = Rails()
    nccl_rails.read(host, text, rails)
    return rails


@pytest.mark.parametrize(
    ("text", "rank", "gpu", "devices"),
    [
        ("Channel 00/0 : 3[3] -> 11[3] [send] via NET/Libfabric/3/GDRDMA", 3, 3, {3}),
        ("Channel 00/0 : 11[3] -> 3[4] [receive] via NET/AWS Libfabric/2/GDRDMA", 3, 4, {2}),
        ("Channel 12 : 0[901c0] -> 8[901c0] [receive] via NET/AWS Libfabric/0", 8, None, {0}),
        ("Channel 12 : 0[901] -> 8[901] [receive] via NET/AWS Libfabric/0", 8, None, {0}),
        ("Channel 12 : 0[15] -> 8[15] [receive] via NET/AWS Libfabric/0", 8, 15, {0}),
        ("Ring 00 : 7 -> 8 [send] via NET/AWS Libfabric/0", 7, None, {0}),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/1/GDRDMA/Shared", 0, 0, {1}),
        ("Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/9999", 0, 0, {9999}),
    ],
)
def test_a_channel_of_every_version_names_its_rank_and_network_device(text, rank, gpu, devices):
    (((_, number), found),) = said(text).ranks.items()
    assert (rank, gpu, devices) == (number, found.gpu, found.devices)


@pytest.mark.parametrize(
    "text",
    [
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/12345/GDRDMA",  # no such number of devices
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/1(",
        "Channel 00/0 : 0[0] -> 8[0] [send] via P2P/CUMEM",
        "Channel 00/0 : 0[0] -> 8",
        "Channel 00/0 : 0[0] -> 8[0] [seip-10-1-0-2:9:9 [1] NCCL INFO Channel 01/0 : 9[1] -> 1[1] [send] via NET/L/1/G",
        "NIC group 3 device #0 0000:4f:0",
        "GPU Direct RDMA Enabled for HCA 3 'rdmap79",
        "",
    ],
)
def test_a_damaged_line_tells_nothing(text):
    rails = said(text)
    assert ({}, {}) == (rails.ranks, rails.hosts)


def test_with_pxn_the_nic_belongs_to_the_rank_that_lends_it():
    rails = said("Channel 00/0 : 1[1] -> 10[2] [send] via NET/Libfabric/2(2)/GDRDMA")
    assert set() == rails.rank("ip-10-1-0-1", 1).devices
    assert {2} == rails.rank("ip-10-1-0-1", 2).devices


def test_the_four_nics_of_a_gpu_are_named_with_their_addresses():
    rails = rails_of(lines_of())
    assert [
        "rdmap112s0 (0000:70:00.0)",
        "rdmap113s0 (0000:71:00.0)",
        "rdmap114s0 (0000:72:00.0)",
        "rdmap115s0 (0000:73:00.0)",
    ] == nccl_rails.of_gpu(rails, "ip-10-1-0-2", 3)


@pytest.mark.parametrize(
    ("address", "name"),
    [("0000:10:1b.0", "rdmap16s27"), ("0000:4f:00.0", "rdmap79s0"), ("0001:4f:00.2", "rdmaP1p79s0f2")],
)
def test_a_name_follows_from_an_address_as_rdma_core_makes_it(address, name):
    assert name == nccl_rails.name_of(address)


def test_a_name_of_another_kind_leaves_the_addresses():
    rails = said("NIC group 0 device #0 0000:4f:00.0")
    rails.host("ip-10-1-0-1").names[0] = "efa_0"
    assert ["0000:4f:00.0"] == nccl_rails.nics(rails.hosts["ip-10-1-0-1"], 0)


def test_a_group_that_contradicts_the_name_of_its_device_is_not_used():
    rails = said("NIC group 0 device #0 0000:4f:00.0")
    rails.host("ip-10-1-0-1").names[0] = "rdmap16s27"
    assert ["rdmap16s27"] == nccl_rails.nics(rails.hosts["ip-10-1-0-1"], 0)


def test_a_device_beyond_those_listed_has_a_number_and_no_name():
    rails = rails_of(
        [*lines_of(), "ip-10-1-0-1:1:1 [0] NCCL INFO Channel 0/0 : 0[0] -> 8[0] [send] via NET/L/77/GDRDMA"]
    )
    assert "network device 77" == nccl_rails.of_gpu(rails, "ip-10-1-0-1", 0)[-1]


def test_a_log_without_nics_names_none():
    assert [] == nccl_rails.of_gpu(
        rails_of(["ip-10-1-0-1:1:2 [0] NCCL INFO Using network Libfabric"]), "ip-10-1-0-1", 0
    )


def test_labels_of_launchers_change_nothing():
    plain = rails_of(lines_of())
    assert plain == rails_of([f"{i % 16}: {line}" for i, line in enumerate(lines_of())])
    assert plain == rails_of([f"[1,{i % 16}]<stdout>:{line}" for i, line in enumerate(lines_of())])


def test_equal_nodes_are_even():
    assert [] == list(nccl_rails.uneven(rails_of(lines_of())))


def test_a_rank_with_half_its_nics_is_compared_with_the_same_gpu_of_the_other_node():
    (one,) = nccl_rails.uneven(rails_of(lines_of({"nics": {"ip-10-1-0-2 5": 2}})))
    assert ("ip-10-1-0-2", 13, 5, 2, 4) == (one.host, one.rank, one.gpu, one.count, one.usual)
    assert "same GPU on other nodes" in one.others


def test_one_nic_less_of_four_is_found_and_the_same_number_everywhere_is_not():
    assert 1 == len(list(nccl_rails.uneven(rails_of(lines_of({"nics": {"ip-10-1-0-2 5": 3}})))))
    both = {"nics": {f"{host} {gpu}": 3 for host in HOSTS for gpu in range(GPUS)}}
    assert [] == list(nccl_rails.uneven(rails_of(lines_of(both))))


def test_the_same_loss_on_every_node_shows_inside_the_nodes():
    both = {"nics": {f"{host} 5": 2 for host in HOSTS}}
    assert {("ip-10-1-0-1", 5), ("ip-10-1-0-2", 13)} == {
        (one.host, one.rank) for one in nccl_rails.uneven(rails_of(lines_of(both)))
    }


def test_half_a_log_accuses_nobody():
    lines = lines_of()
    cut = next(i for i, line in enumerate(lines) if "rank 13 nranks" in line)  # before its channels
    assert [] == list(nccl_rails.uneven(rails_of(lines[:cut])))
    assert [] == list(
        nccl_rails.uneven(rails_of([line for line in lines if "[13]" not in line and "13[" not in line][:-9]))
    )


def test_a_last_line_that_was_cut_off_is_not_read():
    text = (
        "".join(f"{line}\n" for line in lines_of())
        + "ip-10-1-0-1:1:1 [0] NCCL INFO Channel 0/0 : 0[0] -> 8[0] [send] via NET/L/7"
    )
    assert rails_of(lines_of()) == rails_of(text.splitlines(True))


def test_a_table_shows_the_node_with_fewer_nics_and_another_and_only_then():
    table = view.nic_lines(rails_of(lines_of({"nics": {"ip-10-1-0-2 5": 2}})))
    assert any(line.split()[:4] == ["ip-10-1-0-2", "13", "5", "2"] for line in table)
    assert any(line.split()[:4] == ["ip-10-1-0-1", "5", "5", "4"] for line in table)
    assert [] == view.nic_lines(rails_of(lines_of()))


def test_the_table_of_a_large_run_is_cut_and_says_so():
    hosts = tuple(f"ip-10-1-0-{i}" for i in range(1, 9))
    model = {"nics": {f"{host} 0": 1 for host in hosts[:4]}}
    table = view.nic_lines(rails_of(lines_of(model, hosts)))
    assert view.MOST_RANKS + 2 == len(table)
    assert "ranks more" in table[-1]


def ranks(*used, over=True):
    rails = Rails()
    for number, devices in enumerate(used):
        rank = rails.rank("n1", number)
        rank.gpu, rank.devices, rank.over = number, set(range(devices)), over
    return [(uneven.rank, uneven.count, uneven.usual) for uneven in nccl_rails.uneven(rails)]


def test_a_gpu_with_fewer_nics_than_most_of_its_node_is_uneven():
    assert [(3, 1, 4)] == ranks(4, 4, 4, 1)
    assert [(2, 1, 4)] == ranks(4, 4, 1)  # two of three are most
    assert [] == ranks(4, 4, 1, 1)  # half are not
    assert [] == ranks(4, 4, 4, 0)  # one that used none took another way
    assert [] == ranks(4, 4, 4, 1, over=False)
