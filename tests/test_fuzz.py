"""The short form of ``make fuzz``: a hundred inputs for each reader."""

from __future__ import annotations

import pytest

from tests import fuzz


@pytest.mark.parametrize("reader", sorted(fuzz.READERS))
def test_no_reader_breaks_on_what_it_may_be_given(reader: str) -> None:
    assert [] == fuzz.run(reader, 7, range(100))


def test_an_input_can_be_made_again_by_its_number() -> None:
    (again,) = fuzz.inputs("scan", 7, [41])
    assert again in list(fuzz.inputs("scan", 7, range(42)))
