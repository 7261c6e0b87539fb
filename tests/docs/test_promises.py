"""The documentation promises nothing: what is missing is a row of docs/features.md."""

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TEXTS = [
    PROJECT / "README.md",
    PROJECT / "CONTRIBUTING.md",
    *sorted((PROJECT / "docs").rglob("*.md")),
    *sorted((PROJECT / "src").rglob("*.py")),
    *sorted((PROJECT / "examples").rglob("*.py")),
]

#: Words of promises: what is to come some day, and what is said to be absent for now.
PROMISE = re.compile(
    r"not (?:yet )?there\b(?: yet)?|not yet (?:there|possible|supported|done|built)|"
    r"not (?:possible|supported|implemented|available) yet|\bcannot [^.|\n]{0,40} yet\b|"
    r"does not know [^.|\n]{0,40} yet|\| not yet \||\*later\*|what comes next|\bto come:|"
    r"will (?:live|be added|be supported|follow)\b|\bcomes? with streams|"
    r"in a later (?:version|release)|\b(?:is|are) planned for\b|\b(?:coming soon|some day)\b",
    re.IGNORECASE,
)

#: Sentences in which the same words say something of events, files or data.
PLAIN = (
    "Skip to a variable that is not there",
    "name a folder that is empty or not there",
    "numbers that can be told from others are not there",
    "if not there:",
)


def test_nothing_is_promised() -> None:
    promises = [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for path in TEXTS
        if path.name != "features.md"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if PROMISE.search(line) and not any(sentence in line for sentence in PLAIN)
    ]
    assert not promises, "\n".join(promises)


def test_features_says_what_is_missing() -> None:
    page = (PROJECT / "docs" / "features.md").read_text(encoding="utf-8")
    rest = page.replace("| not yet |", "").replace('"not yet" where there is nothing', "")
    assert not PROMISE.search(rest)
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert "Missing: recovery of groups by a replay" in readme
