"""Parses whole columns of text cells: durations, sizes, and names of columns and units.

Every function works on the distinct strings of a column, because logs repeat most of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

__all__ = [
    "SIZES_GIB",
    "UNITS_S",
    "by_value",
    "durations",
    "gib_of",
    "mapping_of",
    "numbers_in",
    "sizes",
]

Parsed = tuple["npt.NDArray[np.float64]", "npt.NDArray[np.bool_]"]

UNITS_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
"""Number of seconds in each unit of time."""

_PREFIXES = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40, "P": 2.0**50}
SIZES_GIB = {
    **{f"{prefix}iB": size / 2**30 for prefix, size in _PREFIXES.items() if prefix},
    **{f"{prefix}B": 1000.0**power / 2**30 for power, prefix in enumerate(("", *"kMGTP"))},
}
"""Number of GiB in each unit of memory."""

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DECIMAL = r"\d+(?:\.\d*)?|\.\d+"
# In the patterns below, each group is named after its unit.
# This one accepts Slurm's [days-]hours:minutes:seconds, and days as Python and pandas write them.
_CLOCK = rf"^(?:(?P<d>\d+)(?:-| days?,? +))?(?:(?P<h>\d+):)?(?P<min>\d+):(?P<s>{_DECIMAL})$"
_ISO = (
    rf"^P(?:(?P<w>{_DECIMAL})W)?(?:(?P<d>{_DECIMAL})D)?"
    rf"(?:T(?:(?P<h>{_DECIMAL})H)?(?:(?P<min>{_DECIMAL})M)?(?:(?P<s>{_DECIMAL})S)?)?$"
)
_WORDS = (
    rf"^(?:(?P<w>{_DECIMAL}) *w(?:eeks?)?)? *(?:(?P<d>{_DECIMAL}) *d(?:ays?)?)? *"
    rf"(?:(?P<h>{_DECIMAL}) *(?:h|hrs?|hours?))? *(?:(?P<min>{_DECIMAL}) *(?:m|mins?|minutes?))? *"
    rf"(?:(?P<s>{_DECIMAL}) *(?:s|secs?|seconds?))? *(?:(?P<ms>{_DECIMAL}) *(?:ms|msecs?))?$"
)
_FORMS = (_CLOCK, _ISO, _WORDS)
_ONE_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *([KkMmGgTtPp]?)i?[Bb]?[cn]?")
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)([numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    **{prefix: 1000.0**power for power, prefix in enumerate("kMGTPE", 1)},
    **{f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", 1)},
}
_PARENTHESES = re.compile(r"\([^)(]*\)")
_DIGITS = 10  # A longer number is read as a name; our own choice.
_SIZE = r"^(?P<number>\d+(?:\.\d*)?|\.\d+) *(?P<prefix>[KkMmGgTtPp]?)(?P<rest>i?[Bb]?[cn]?)$"


def by_value(texts: Any, function: Callable[[Any], Parsed]) -> Parsed:
    """Apply a function to the distinct strings of a column; null and empty cells become NaN.

    Returns
    -------
    (float64 array, bool array)
        The values, and a mask of the cells that do not contain a value.
    """
    encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    distinct = pc.ascii_trim_whitespace(encoded.dictionary)
    values, wrong = function(distinct)
    blank = pc.equal(distinct, "").to_numpy(zero_copy_only=False).astype(np.bool_)
    values = np.append(np.where(blank | wrong, np.nan, values), np.nan)
    wrong = np.append(wrong & ~blank, False)
    codes = encoded.indices
    if codes.null_count:
        codes = codes.fill_null(len(distinct))
    places = np.asarray(codes.to_numpy(zero_copy_only=False))
    return values[places], wrong[places]


def numbers_in(texts: Any, decimal: str = ".") -> Parsed:
    """Convert plain numbers."""

    def parse(distinct: Any) -> Parsed:
        if decimal != ".":
            distinct = pc.replace_substring(
                pc.replace_substring(distinct, ".", ""), pattern=decimal, replacement="."
            )
        return _plain(distinct)

    return by_value(texts, parse)


def durations(texts: Any, unit_s: float = 1.0) -> Parsed:
    """Convert durations to seconds: plain numbers, `1-02:03:04`, `90m`, `1h 30min`, `PT1H30M`.

    Two numbers separated by a colon are minutes and seconds.

    Examples
    --------
    >>> import pyarrow as pa
    >>> durations(pa.array(["90", "90m", "1-02:03:04", "PT1H30M", "soon"]))[0].tolist()
    [90.0, 5400.0, 93784.0, 5400.0, nan]
    """

    def parse(distinct: Any) -> Parsed:
        values, wrong = _plain(distinct)
        values *= unit_s
        for form in _FORMS:
            rows = np.flatnonzero(wrong)
            if not len(rows):
                break
            parts = pc.extract_regex(distinct.take(pa.array(rows)), pattern=form)
            found = parts.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
            total, some = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
            for field in parts.type:
                texts_of = pc.fill_null(pc.struct_field(parts, field.name), "")
                given = pc.not_equal(texts_of, "")
                total += _float(pc.if_else(given, texts_of, "0")) * UNITS_S[field.name]
                some |= given.to_numpy(zero_copy_only=False).astype(np.bool_)
            found &= some
            values[rows[found]] = total[found]
            wrong[rows[found]] = False
        return values, wrong

    return by_value(texts, parse)


def sizes(texts: Any, unit_gib: float = 1.0) -> Parsed:
    """Convert sizes to GiB: plain numbers, `64G`, `1.5Ti`, `16384MiB` (powers of 1,024)."""

    def parse(distinct: Any) -> Parsed:
        parts = pc.extract_regex(distinct, pattern=_SIZE)
        wrong = ~parts.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
        values = _float(pc.fill_null(pc.struct_field(parts, "number"), "0"))
        prefixes = pc.ascii_upper(pc.fill_null(pc.struct_field(parts, "prefix"), ""))
        plain = pc.equal(pc.fill_null(pc.struct_field(parts, "rest"), ""), "")
        unit = np.where(
            plain.to_numpy(zero_copy_only=False).astype(np.bool_), unit_gib, _PREFIXES[""] / 2**30
        )
        for prefix, size in _PREFIXES.items():
            if prefix:
                has = pc.equal(prefixes, prefix).to_numpy(zero_copy_only=False).astype(np.bool_)
                unit = np.where(has, size / 2**30, unit)
        return values * unit, wrong

    return by_value(texts, parse)


def gib_of(text: str, unit: str = "G") -> float:
    """Convert a size to GiB; a number without a prefix is in `unit`.

    Raises
    ------
    ValueError
        If the string is not a quantity.

    Examples
    --------
    >>> gib_of("64G"), gib_of("2048", "M"), gib_of("16Gi"), gib_of("1000000000", "")
    (64.0, 2.0, 16.0, 0.9313225746154785)
    """
    found = _ONE_SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a size: {text}")
    number, prefix = found.groups()
    return float(number) * _PREFIXES[(prefix or unit).upper()] / 2**30


def gres_gpus(text: str) -> dict[str, int]:
    """Return the number of GPUs of each type in Slurm's generic resources; the type may be empty.

    Examples
    --------
    >>> gres_gpus("gpu:a100:8(S:0-1),gpu:k80:2,mps:100")
    {'a100': 8, 'k80': 2}
    >>> gres_gpus("gres:gpu:4"), gres_gpus("gpu"), gres_gpus("(null)")
    ({'': 4}, {'': 1}, {})
    """
    found: dict[str, int] = {}
    for item in _PARENTHESES.sub("", text).split(","):
        parts = item.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if parts[0] != "gpu":
            continue
        count = 1
        if len(parts) > 1 and parts[-1].isdecimal() and len(parts[-1]) < _DIGITS:
            count = int(parts.pop())
        if count:
            kind = ":".join(parts[1:])
            found[kind] = found.get(kind, 0) + count
    return found


def quantity(amount: str | float) -> float:
    """Parse a quantity in Kubernetes notation.

    Raises
    ------
    ValueError
        If the string is not a quantity.

    Examples
    --------
    >>> quantity("500m"), quantity("64Gi") / 2**30, quantity("2k"), quantity(8)
    (0.5, 64.0, 2000.0, 8.0)
    """
    if not isinstance(amount, str):
        return float(amount)
    found = _QUANTITY.fullmatch(amount)
    if found is None:
        raise ValueError(f"not a quantity: {amount}")
    number, suffix = found.groups()
    return float(number) * _SUFFIXES[suffix or ""]


def _plain(distinct: Any) -> Parsed:
    """Convert plain numbers, and mark the strings that are neither blank nor numbers."""
    try:  # nearly every text has neither blanks nor infinities
        values = _float(distinct)
        return np.where(np.isfinite(values), values, np.nan), ~np.isfinite(values)
    except pa.ArrowInvalid:
        pass
    plain = pc.match_substring_regex(distinct, _NUMBER)
    values = _float(pc.if_else(plain, distinct, "0"))
    wrong = ~plain.to_numpy(zero_copy_only=False).astype(np.bool_) | ~np.isfinite(values)
    return values, wrong


def _float(texts: Any) -> npt.NDArray[np.float64]:
    """Convert strings that are numbers."""
    cast = pc.utf8_ltrim(texts, characters="+").cast(pa.float64())
    return np.array(cast.to_numpy(zero_copy_only=False), dtype=np.float64)


def mapping_of(text: str, flag: str = "columns") -> dict[str, str]:
    """Parse `NATIVE=THEIRS,...`; an empty right side leaves the column out.

    A pair that contains a comma is quoted.

    Raises
    ------
    TraceError
        If a pair has no equals sign or no native name, or if a native name occurs twice.

    Examples
    --------
    >>> mapping_of('gpus=nodes*gpus_per_node,duration_s="run time, s"@min')
    {'gpus': 'nodes*gpus_per_node', 'duration_s': 'run time, s@min'}
    """
    pairs: dict[str, str] = {}
    for item in _split(text):
        if not item.strip():
            continue
        native, equals, theirs = item.partition("=")
        name = native.strip()
        if not equals or not name:
            raise TraceError(f"{flag}: expected NATIVE=THEIRS,..., got `{item}`", value=item)
        if name in pairs:
            raise TraceError(
                f"{flag}: expected each name once, got a duplicate `{name}`", value=item
            )
        pairs[name] = theirs.strip()
    return pairs


def _split(text: str) -> list[str]:
    """Split at commas outside double quotes, and remove the quotes."""
    items, is_quoted = [""], False
    for character in text:
        if character == '"':
            is_quoted = not is_quoted
        elif character == "," and not is_quoted:
            items.append("")
        else:
            items[-1] += character
    return items
