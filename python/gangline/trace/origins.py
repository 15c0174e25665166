"""Public files that are recognised by their content: where they come from, how to cite them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PHILLY = {
    "origin": "Microsoft Philly 2017, five-column extract (82,247 jobs)",
    "licence": "CC BY 4.0",
    "citation": "Jeon et al., USENIX ATC 2019",
    "zone": "US Pacific (inferred)",
}
_VENUS = {
    "origin": "SenseTime Helios Venus 2020, four columns (125,303 GPU jobs)",
    "licence": "CC BY 4.0",
    "citation": "Hu et al., SC 2021",
    "epoch": "2020-03-18T04:01:39 UTC+8",
    "zone": "UTC+8",
}
_PAI = {
    "origin": "Alibaba PAI 2020, four-column sample (60,105 tasks)",
    "licence": "CC BY 4.0",
    "citation": "Weng et al., NSDI 2022",
}

# Hash of the file as published, and of the same file as gzip stores it in the public collection.
ORIGINS: Mapping[str, Mapping[str, str]] = {
    "ebffb3dd1589bdf4e7bcd74496201c5ded1d557d498ee14f560463f37ec353da": _PHILLY,
    "dd044eace2854471dbb87b59d31efd7bba652cb782c039b5166e8a3ef2aaeae2": _VENUS,
    "9577504848fcf4fd2313250a0245859588a22fbb8a4ae271f555cdec0102dae2": _PAI,
}


def lookup(digest: str) -> Mapping[str, str]:
    """Return what is known about the file with this sha256; empty if nothing."""
    return ORIGINS.get(digest, {})
