"""An instance that was replaced is another machine."""

from __future__ import annotations

from hpslurm.cluster.history_machines import Machines, name_of


def test_a_name_whose_machine_never_changed_is_the_machine() -> None:
    machines = Machines([("n1", 10.0, "i-a"), ("n1", 20.0, "i-a")], {})
    assert ("n1", "n1", "i-a") == (machines.machine("n1", 5), machines.present("n1"), machines.instance("n1"))
    assert "n9" == machines.machine("n9", 5)


def test_records_of_another_instance_are_another_machines() -> None:
    machines = Machines([("n1", 1000.0, "i-a"), ("n1", 4000.5, "i-b"), ("n1", 5000.0, "i-b")], {})
    assert ["n1 (i-a)", "n1 (i-a)", "n1 (i-b)"] == [machines.machine("n1", when) for when in (500, 3099, 4000)]
    assert "n1 (i-b)" == machines.present("n1")
    assert ("n1", "i-a") == (name_of("n1 (i-a)"), machines.instance("n1 (i-a)"))
    assert [4000.5] == [stay.since for stay in machines.replaced("n1")]


def test_the_first_job_of_a_machine_is_its_own_though_the_epilog_comes_after_the_jobs_end() -> None:
    machines = Machines(
        [("n1", 1000.0, "i-a"), ("n1", 1300.0, "i-b"), ("n2", 1000.0, "i-c"), ("n2", 9000.0, "i-d")], {}
    )
    assert ["n1 (i-a)", "n1 (i-b)"] == [machines.machine("n1", when) for when in (1000, 1001)]
    assert ["n2 (i-c)", "n2 (i-d)"] == [machines.machine("n2", when) for when in (8099, 8100)]


def test_hyperpod_says_when_the_present_instance_came_better_than_its_first_record() -> None:
    machines = Machines([("n1", 1000.0, "i-a"), ("n1", 9000.0, "i-b")], {"n1": (3000.0, "i-b")})
    assert ["n1 (i-a)", "n1 (i-b)"] == [machines.machine("n1", when) for when in (2999, 3000)]


def test_what_was_before_the_launch_of_the_instance_was_another_machine() -> None:
    machines = Machines([], {"n1": (1000.0, "i-b"), "n2": (1000.0, "i-c")}, since=500.0)
    assert ["n1 (before)", "n1 (i-b)"] == [machines.machine("n1", when) for when in (999, 1000)]


def test_a_launch_before_the_time_that_is_looked_at_changes_nothing() -> None:
    assert "n1" == Machines([], {"n1": (1000.0, "i-b")}, since=2000.0).machine("n1", 3000)


def test_hyperpods_word_on_the_present_instance_comes_after_the_records() -> None:
    machines = Machines([("n1", 10.0, "i-a")], {"n1": (50.0, "i-b")})
    assert ["n1 (i-a)", "n1 (i-b)"] == [machines.machine("n1", when) for when in (49, 50)]


def test_an_instance_is_found_when_another_one_has_its_name() -> None:
    machines = Machines([("n1", 10.0, "i-a"), ("n1", 20.0, "i-b"), ("n2", 10.0, "i-c")], {})
    assert ["n1 (i-a)", "n1 (i-b)", "n2", ""] == [machines.of_instance(name) for name in ("i-a", "i-b", "i-c", "i-d")]
