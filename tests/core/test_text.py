"""Foreign text: what is taken out of it, and where it is cut."""

from __future__ import annotations

import pytest

from hpslurm.core.text import clean, size, whole


@pytest.mark.parametrize(
    ("first", "last", "becomes"),
    [
        (0x00, 0x1F, " "),  # terminal escapes begin here
        (0x7F, 0x9F, " "),
        (0x200E, 0x200F, " "),  # marks that turn the direction of reading
        (0x2028, 0x202E, " "),
        (0x2066, 0x2069, " "),
        (0xD800, 0xDFFF, "?"),
    ],
)
def test_controls_go_and_their_neighbours_stay(first: int, last: int, becomes: str) -> None:
    for code in range(first, last + 1):
        assert f"a{becomes}b" == clean(f"a{chr(code)}b")
    for code in {first - 1, last + 1} - {-1}:
        assert f"a{chr(code)}b" == clean(f"a{chr(code)}b")


def test_four_hundred_characters_stay_and_of_more_the_last_shows_the_cut() -> None:
    assert "x" * 400 == clean("x" * 400)
    assert "x" * 399 + "…" == clean("x" * 401)


def test_a_number_has_at_most_twenty_digits_and_those_are_ascii() -> None:
    assert 10**19 == whole("1" + "0" * 19)
    assert [None] * 4 == [whole(text) for text in ("1" * 21, "", "-1", "٣")]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1025, "1.0 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 20) - 1, "1023.9 KiB"),
        (1 << 30, "1 GiB"),
        (1 << 40, "1 TiB"),
        (3 << 29, "1.5 GiB"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_reaches(count: int, said: str) -> None:
    assert said == size(count)
