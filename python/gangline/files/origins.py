"""Recognises public files by their content and gives their origins and citations."""

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
_OPENB = {
    "origin": "Alibaba openb 2023, a list of pods",
    "licence": "none stated with the data; Apache-2.0 in the authors' simulator",
    "citation": "Weng et al., USENIX ATC 2023",
    "epoch": "start of the trace, date unknown",
}
_WINDOW = "a repository without a licence; the original trace is CC BY 4.0"
_WINDOW_HELIOS = {
    "origin": "SenseTime Helios 2020, a window of 15,000 jobs",
    "licence": _WINDOW,
    "citation": "Soundar Raj et al., JSSPP 2024; Hu et al., SC 2021",
    "epoch": "unknown",
}
_WINDOW_PHILLY = {
    "origin": "Microsoft Philly 2017, a window of 15,000 jobs",
    "licence": _WINDOW,
    "citation": "Soundar Raj et al., JSSPP 2024; Jeon et al., USENIX ATC 2019",
    "epoch": "unknown",
}
_MURI = {
    "origin": "Muri, jobs from Philly virtual clusters with models drawn by the authors of Muri",
    "licence": "Apache-2.0",
    "citation": "Zhao et al., SIGCOMM 2022",
}
_TIRESIAS = {
    "origin": "Tiresias simulator, sample of 60 jobs",
    "licence": "Apache-2.0",
    "citation": "Gu et al., NSDI 2019",
}
_POLLUX = {
    "origin": "Pollux, a workload of 160 jobs",
    "licence": "Apache-2.0",
    "citation": "Qiao et al., OSDI 2021",
}
_GAVEL = {
    "origin": "Gavel, a trace from its authors",
    "licence": "MIT",
    "citation": "Narayanan et al., OSDI 2020",
}
_BATSIM = {"origin": "Batsim, a sample workload", "licence": "LGPL-3.0"}

_DIGITS = 16
# For each origin, the first digits of the SHA-256 of its published files, after unpacking.
_FILES: tuple[tuple[Mapping[str, str], str], ...] = (
    (
        _PHILLY,
        "ebffb3dd1589bdf4",
    ),
    (
        _VENUS,
        "dd044eace2854471",
    ),
    (
        _PAI,
        "9577504848fcf4fd",
    ),
    (
        _OPENB,
        """
        12dbc07d6a49bf86 134c21ff96d57533 1bc3fd9ee5c1468c 1ee7ed79c27a3b08
        2dc7e4cb9480484f 6b9b89ab8913c1c0 747f43247bffc2b0 76528825f40ee662
        87bebd4d012faa83 88b6649369ced40d 8ed554026d041b15 8f1c0ef7e4e511e9
        9be2d0efb52e242c 9d030679a2ccd7e2 b7e9d8a1a601da84 bec1c33fbdde61fd
        d31809628128a1f2 d83ce79a4eb69875 eca4f746db1e5b25 f8a2b031461b54d7
        """,
    ),
    (
        _WINDOW_HELIOS,
        "042b2648eb850b8f",
    ),
    (
        _WINDOW_PHILLY,
        "98d2ca0f525309a4",
    ),
    (
        _MURI,
        """
        534d02a4ebe53aee 5c29e1c49ed7929b 69754a0fc95b75de 863c459ccf69be70
        a1bcc3019aa3cc35 af45628e89017a4f affc099b308b8425 de6449be0dcb9f48
        dfa7a6b0f5ff6fe4 f30e5e32bd698dc3 fc8d59783486122d fe73b5e39c75ea73
        """,
    ),
    (
        _TIRESIAS,
        "17575949a6e57096",
    ),
    (
        _POLLUX,
        """
        0bff9c3a36b52c70 13618461b7dd4597 18b9d7d854fa2662 1c54f55b3ec2577f
        22c400f59637ba0f 318d0df8b46c2eaa 4761ea418f2cb618 4e4abcd9c5c012c6
        786745c8c52f4578 83bec266667ec209 c45c495ba11251d5 d6517c4d57c72e4f
        d76d5d1e3f9143b5 e1650a58264858a1 eabbc315b3e7043e fd29e99deef2c9ed
        """,
    ),
    (
        _GAVEL,
        """
        00ca925d98793cfc 045a3b9dfcdc4904 0586cfe25729594a 07ec1cfb6f3108dc
        0892a7ed9a135c7b 0ab1f8c7999b4382 0d39f054974a89f3 0d879d5317e5d2d2
        0f77e1db2dc33e3e 118fb014067017af 11b2902f1d994adf 161ebef0f499a83b
        1a216a80d1f40bc2 21785530a830116c 22a2e1c8878b5611 250e279e3aa79fe9
        2745ad1651640aea 29507c1f06047505 2cd77e9c93c2a591 2d9f787de877799f
        2fd3fa11a15fdc51 306e146bb804e170 35251f2e87d2c703 36d7d8e239846e7d
        3f62532d3bce922d 498b1cdae5247e84 4deab594cec0d140 4eadbf3135898f95
        5114c737cf35cd54 52a95b1f5b9bda0b 564d111beabcdfb0 56dfc3e66adbdf48
        5b3b77f60b854dc6 5b895618b8c70e76 5e4a2b5508e89b52 5e77c69605651395
        5e79d152cad57cb2 682d28fde1e52509 71b4ac749600dc8a 725f57dd906c30d9
        73c99062321efce8 76a5d2119774f81f 77f0af5165b2adfb 7d629b9ea4e29f66
        804164a774803779 87587b710b4c113c 8964aed38ba3a5e8 8ae59b56226626bf
        8d0c60a927be62f0 8d60e3e2df746aca 918925e3bcfe6ef2 952a5ca0842149b7
        993c5d59d0b74475 995884b79a7d529b 9970679486767040 9dd4b0aeee6194a6
        a0a0cefe1d2e32a5 a25a638632a426c1 a25f9b44be047452 a38b354105e3e703
        a8a3a2404a9ff837 aa267474f78f61ef b00befc3fc2a62c1 b5575d31cbefb00c
        b7c1e5601f600146 b80fa47554dca5cf bd22492d4291f380 c8abaf813d53f8a6
        cd48985694a88679 ce629ae806113d60 d5c1ad098b8a038f d789804b5e18daaa
        dc13589c23c7b77d dfd2399d2da749ae dfd3ae4c9b4d886b e7e0f20b387f2631
        e951384bb6f545f7 e999948ee9c399c0 ec40afba05c04812 efca3dcd843bcc76
        f2ea5209f8d8d284 fb2bfb618e7f27b7 fd52818786c4c16a
        """,
    ),
    (
        _BATSIM,
        """
        11c4a31513060cee 152591ad914a347d 1860b80f0699dcbd 18d3dbaf062d72df
        22b5d12da0479d82 27c9185271dd30ee 2a468ceaa3be03f5 301ad7ac1352ef06
        3120b24c32713613 3af4ca941e44492a 3f23be54f362e815 50b5d6ecc2a31c1d
        6db88226911d0ed4 7399f8fe40c8f37f 7869393347b0a272 8260aa2ead2a18e0
        895ea1c0fb0187dc 97e65b83f02a5391 9bf176a6f74d0989 a1c0bd9d58aa2450
        a4119e499c49f8cf a49a46ba7c1dbe2d ab1b93c791d61d4a ad84b99f0ee04f3e
        ae7df5c0c2a26610 aed033ffff1a3931 b88fd41cac63075f b8f2516a1839eb9c
        bf61106b9440a1bd d3023d3ce9023d60 d9b1f961f18ad6ff e19ab70a6d01dadf
        ed1d05dea225fa3f f24231f112de3f1b
        """,
    ),
)


def lookup(digest: str) -> Mapping[str, str]:
    """Return the known facts about the file with this SHA-256; empty if there are none."""
    for known, beginnings in _FILES:
        if digest[:_DIGITS] in beginnings.split():
            return known
    return {}
