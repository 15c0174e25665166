"""Checks that the project uses the terms of its field, as in the glossary `docs/vocabulary.md`.

What a user reads (documentation, help, messages, docstrings) and the names in the code are searched
for home-made words that once stood for a term. This test does not check ordinary English.
"""

from __future__ import annotations

import re

from meta.house import ROOT, files, relative

# Each misleading word, and what to write instead.
BANNED = {
    r"compan(?:y|ies)": "co-runner, co-location",
    r"guests?": "opportunistic (backfilled) job",
    r"seats?": "free-capacity profile",
    r"crowd(?:s|ed)?": "co-located jobs, or a busy cluster",
    r"fickle": "non-monotone",
    r"thrown back": "requeued, evicted",
    r"(?:is|are|was|were) told": "knows, reads, is given",
    r"kept shares?": "locality factor",
    r"limits? of work": "iteration quota",
    r"resting": "paused at its quota",
    r"neighbou?rs?": "co-runner",
    r"slow-downs?": "slowdown, slowdown factor",
    r"on the wall": "wall-clock time",
    r"twins?": "heterogeneity-agnostic variant; counterpart",
    r"whoever|nobody|somebody|everybody|everyone": "the job that, no job, a job, all jobs",
    r"yardsticks?": "baseline, reference",
    r"there twice": "duplicate",
}
WORDS = re.compile(
    "|".join(f"(?P<w{i}>(?<![a-z]){word}(?![a-z]))" for i, word in enumerate(BANNED)), re.IGNORECASE
)

PLACES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/concepts",
    "docs/decisions.md",
    "docs/fidelity.md",
    "docs/guides",
    "docs/performance.md",
    "docs/policies",
    "docs/reference",
    "python/gangline",
    "rust",
)
"""What users read, and the code. Left are the tests, and the glossary, which lists the words."""


def offenders_in(name: str, text: str) -> list[str]:
    """Return each banned word with its line and what to write instead."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for match in WORDS.finditer(line):
            instead = list(BANNED.values())[int(str(match.lastgroup)[1:])]
            found.append(f"{name}:{number}: {match[0]}: write {instead}")
    return found


def offenders_of(place: str) -> list[str]:
    """Search a file or a folder."""
    path = ROOT / place
    paths = [path] if path.is_file() else files(".md", ".py", ".rs", under=path)
    assert paths, f"{place} has no text: the rule looks at nothing"
    return [
        offender
        for one in paths
        for offender in offenders_in(relative(one), one.read_text("utf-8"))
    ]


def test_no_home_made_words() -> None:
    assert [offender for place in PLACES for offender in offenders_of(place)] == []


def test_a_home_made_word_is_named() -> None:
    sample = "max_guests = 3\nThe backfilled job, its co-runner\n`Neighbour`, slow-down\ncalm\n"
    assert offenders_in("a.py", sample) == [
        "a.py:1: guests: write opportunistic (backfilled) job",
        "a.py:3: Neighbour: write co-runner",
        "a.py:3: slow-down: write slowdown, slowdown factor",
    ]
