"""Our light value classes behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hpslurm.core import values


def both(body: str) -> list[Any]:
    """The same class made by the standard module and by ours."""
    made = []
    for module in (dataclasses, values):
        space: dict[str, Any] = {"field": module.field, "ClassVar": ClassVar, "__name__": __name__}
        text = "from __future__ import annotations\nclass Point:\n" + "\n".join(
            f"    {line}" for line in body.split(";")
        )
        exec(text, space)
        made.append(module.dataclass(frozen=True)(space["Point"]))
    return made


POINT = ";".join(
    (
        "x: int",
        "y: int = 2",
        "tags: tuple = ()",
        "more: list = field(default_factory=list)",
        "hidden: int = field(default=1, repr=False)",
        "kind: ClassVar[int] = 7",
    )
)


@values.dataclass(frozen=True)
class Kept:
    """At module level, so that it can be pickled."""

    x: int
    inner: Any = None


def test_values_defaults_and_repr_are_the_same() -> None:
    standard, ours = both(POINT)
    for args, kwargs in (((1,), {}), ((1, 5), {"tags": ("a",)}), ((), {"x": 3, "more": [4]})):
        assert repr(standard(*args, **kwargs)) == repr(ours(*args, **kwargs))


def test_equal_values_are_equal_and_hash_alike() -> None:
    assert Kept(1, (2,)) == Kept(1, (2,))
    assert Kept(1) != Kept(2)
    assert Kept(1) != (1, None)
    assert 1 == len({Kept(1, (2,)), Kept(1, (2,))})


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, (), [], 5, 6), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_calls_are_type_errors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for kind in both(POINT):
        with pytest.raises(TypeError):
            kind(*args, **kwargs)


def test_a_default_factory_makes_one_for_each() -> None:
    _, ours = both(POINT)
    assert ours(1).more is not ours(1).more


def test_values_cannot_be_changed() -> None:
    one = Kept(1)
    with pytest.raises(AttributeError):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del one.x


def test_fields_replace_and_asdict_are_the_same() -> None:
    standard, ours = both(POINT)
    assert [one.name for one in dataclasses.fields(standard)] == [one.name for one in values.fields(ours)]
    assert dataclasses.asdict(dataclasses.replace(standard(1), y=9)) == values.asdict(values.replace(ours(1), y=9))
    assert {"x": 1, "inner": ({"x": 2, "inner": None},)} == values.asdict(Kept(1, (Kept(2),)))


def test_copies_and_pickles_are_equal() -> None:
    one = Kept(1, Kept(2))
    assert one == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))


def test_a_class_that_is_not_frozen_can_be_changed_and_not_hashed() -> None:
    @values.dataclass
    class Open:
        x: int = 1

    one = Open()
    one.x = 2
    assert Open(2) == one
    with pytest.raises(TypeError):
        hash(one)


def test_without_eq_two_are_equal_only_when_they_are_the_same() -> None:
    @values.dataclass(frozen=True, eq=False)
    class Thing:
        x: int = 1

    one = Thing()
    assert {one} == {one}
    assert one != Thing()


def test_the_whole_package_uses_one_kind_of_value() -> None:
    package = Path(values.__file__).parents[1]
    others = [path for path in package.rglob("*.py") if "from dataclasses import" in path.read_text()]
    assert [package / "core" / "values.py"] == others


def test_a_field_can_be_left_out_of_what_is_shown() -> None:
    @values.dataclass(frozen=True)
    class Login:
        name: str
        secret: str = values.field(default="", repr=False)

    assert "Login(name='a')" == repr(Login("a", "b")).rpartition(".")[2]
