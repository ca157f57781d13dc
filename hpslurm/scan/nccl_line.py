"""A line of nccl-tests freed of what others put around it: colours, quotes, cells of a table, labels, time stamps.

People paste these outputs from terminals, from ``kubectl logs``, from web pages and documents. What each of them adds
is known by its shape; what is left begins with words that nccl-tests itself prints.
"""

from __future__ import annotations

from hpslurm.core import linear

MOST_PREFIX = 300  # characters in front of one of nccl-tests' own lines
CELLS = 7  # bars or commas from which a line is one of a table
TYPES = frozenset(("int8", "uint8", "int32", "uint32", "int64", "uint64", "char", "int", "half", "float", "double")) | {
    "bfloat16",
    "f8e4m3",
    "f8e5m2",
    "fp8_e4m3",
    "fp8_e5m2",
}
NUMBER = r"(?:\d{1,18}|\d{1,3}(?:,\d{3}){1,6}|\d{1,4}(?:\.\d{1,3})?[KMGTkmgt]i?B?)"  # of bytes, or of elements
_COLOUR = linear.compile(
    r"(?:\x1b|\^\[|\u241b)[\[(]\d{0,4}(?:[;?]\d{0,4}){0,8}[A-Za-z]|(?<!\w)\[\d{1,3}(?:;\d{1,3}){0,4}m"
)
_PROGRESS = {"\ufeff": "", "\u200b": "", "\xa0": " ", "\u3000": " ", "\u2007": " "}
_WEB = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": " ", "&amp;": "&"}
# What nccl-tests prints first on a line, by its words; the sign before them may be lost.
_OURS = linear.compile(
    r"nccl-tests version \S+ |Collective test (?:starting|concluded)|nThread \d|nGpus(?:\(\w+\))? \d{1,9} minBytes"
    r"|Using devices|Rank\s{1,12}\d{1,9}\s{1,12}(?:Group\s{1,12}\d|Pid\s|on\s|uses\s)"
    r"|Out of bounds values|Avg bus bandwidth"
    r"|Reducing maxBytes to|#\s{0,20}error: "
    r"|(?:size|bytes|Size(?: ?\(B\))?)\s{1,40}(?:(?:count|N)\s{1,40}type\b|[a-z# ]{0,60}(?:time|algbw|busbw)\b)"
)
_ROW = linear.compile(
    rf"(?:^|(?<=[\s:>|\])}}\"'])){NUMBER}\s{{1,40}}{NUMBER}\s{{1,40}}(?:{'|'.join(sorted(TYPES))})(?![\w(])"
)
_BY_HAND = linear.compile(r"\w\s{3,40}$")  # a column of somebody's own before the first
_QUOTED = linear.compile(r"(?:\\[rn]){0,2}[\"'`],?\s{0,20}$|(?:\\[rn]){1,2}\s{0,20}$")
_THOUSANDS = linear.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3}){1,6}(?![\d.,])")


def plain(line: str) -> str:
    """The line without colours, without the web's names of signs, and with blanks between the cells of a table.

    >>> plain("\\x1b[32m| 8 | 2 | float | sum | -1 | 87.96 | 0.00 | 0.00 | 0 |\\x1b[0m")
    '  8   2   float   sum   -1   87.96   0.00   0.00   0  '
    """
    if not line.isascii():
        for sign, instead in _PROGRESS.items():
            line = line.replace(sign, instead)
    if "\x1b" in line or ("m" in line and "[" in line) or "\u241b" in line:
        line = _COLOUR.sub("", line)
    if "&" in line:
        for sign, instead in _WEB.items():
            line = line.replace(sign, instead)
    if line.count("|") >= CELLS and not _is_ruler(line):
        line = line.replace("|", " ")
    elif line.count(",") >= CELLS and "  " not in line.strip() and ", " not in line and "NCCL" not in line:
        line = line.replace(",", " ")
    return line


def _is_ruler(line: str) -> bool:
    return not any(sign.isalnum() for sign in line)


def bare(text: str) -> str:
    """One of nccl-tests' own lines without what stands before it; any other line as it is.

    A number in front of a row, alone and in a column of its own, makes a table that somebody wrote by hand.

    >>> bare("2024-01-01T00:00:00.12Z #  Rank  0 Group  0 Pid 21 on a device  0 [0x35] Tesla T4")
    'Rank  0 Group  0 Pid 21 on a device  0 [0x35] Tesla T4'
    >>> bare("   4   1073741824     268435456     float     sum    70253   15.28   29.61  1e-06")
    '   4   1073741824     268435456     float     sum    70253   15.28   29.61  1e-06'
    """
    head = text[: MOST_PREFIX + 80]
    match = _OURS.search(head)
    if match is not None and match.start() <= MOST_PREFIX and not _BY_HAND.search(head[: match.start()]):
        return unquoted(text[match.start() :])
    if match is not None or (match := _ROW.search(head)) is None:
        return text
    before = text[: match.start()]
    if before.strip().isdigit() and "\t" not in before:
        return text
    row = unquoted(text[match.start() :])
    return _THOUSANDS.sub(lambda number: number.group().replace(",", ""), row) if "," in row else row


def unquoted(text: str) -> str:
    """The line without the quotation mark, comma and ``\\n`` of a list of lines at its end, which nothing opened."""
    match = _QUOTED.search(text)
    sign = match.group().strip("\\rn, ") if match else ""
    return text[: match.start()] if match and (not sign or text.count(sign) % 2) else text


def size_of(word: str) -> int | None:
    """Bytes of a size as it may stand in a table: ``1048576``, or ``1M`` where somebody shortened it.

    >>> size_of("1048576"), size_of("1M"), size_of("1.5GiB"), size_of("float")
    (1048576, 1048576, 1610612736, None)
    """
    if word.isascii() and word.isdigit():
        return int(word) if len(word) <= 18 else None
    number = word.rstrip("iB")
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:].upper())
    try:
        return None if shift is None else int(float(number[:-1]) * (1 << shift))
    except ValueError:
        return None
