"""Every snippet of the README and of docs/ runs, in page order, in a folder of its own.

- ``python`` snippets of one page share a namespace. A snippet that begins with ``>>>`` is run as a
  doctest, so its output is compared too.
- In ``console`` snippets the lines that begin with ``$ outpace`` are run and must exit with 0.
- ``python no-run REASON`` and ``console no-run REASON`` are left out; the reason is required.

A failure names the page and the line.
"""

import doctest
import os
import re
import subprocess
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [
    page
    for page in [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
    if page.is_file()
]
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`]*)$")
CONSOLE_SECONDS_MAX = 600


@dataclass(frozen=True)
class Snippet:
    """A fenced block: where it stands, what its fence says, what it holds."""

    page: str
    line: int  #: of the first line inside the fence, counted from 1
    language: str
    tags: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(page: str, text: str) -> Iterator[Snippet]:
    """All fenced blocks of a page; a block ends at a fence at least as long as its own."""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = FENCE.match(line)
        if opening is None:
            continue
        indent, ticks = len(opening["indent"]), opening["ticks"]
        body: list[str] = []
        for _, inner in lines:
            closing = FENCE.match(inner)
            if closing and not closing["info"].strip() and len(closing["ticks"]) >= len(ticks):
                break
            body.append(inner[min(indent, len(inner) - len(inner.lstrip(" "))) :])
        else:
            raise AssertionError(f"{page}:{number}: the fence is never closed")
        language, _, tags = opening["info"].strip().partition(" ")
        yield Snippet(page, number + 1, language, tags.strip(), "\n".join(body) + "\n")


def is_left_out(snippet: Snippet) -> bool:
    """True for a snippet tagged ``no-run``, which must say why."""
    tag, _, reason = snippet.tags.partition(" ")
    if tag != "no-run":
        return False
    assert reason.strip(), f"{snippet.place}: no-run needs a reason behind it"
    return True


def run_python(snippet: Snippet, namespace: dict[str, object]) -> None:
    if snippet.text.lstrip().startswith(">>>"):
        run_doctest(snippet, namespace)
        return
    # Blank lines in front make the traceback's line numbers those of the page.
    source = "\n" * (snippet.line - 1) + snippet.text
    try:
        exec(compile(source, snippet.page, "exec"), namespace)
    except Exception as error:
        line = failing_line(error, snippet)
        pytest.fail(
            f"{snippet.page}:{line}: the snippet raised {type(error).__name__}\n"
            f"{traceback.format_exc()}",
            pytrace=False,
        )


def failing_line(error: Exception, snippet: Snippet) -> int:
    """The page's line that raised, or the snippet's first line where that is not known."""
    if isinstance(error, SyntaxError) and error.filename == snippet.page and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next(
        (frame.lineno for frame in frames if frame.filename == snippet.page and frame.lineno),
        snippet.line,
    )


def run_doctest(snippet: Snippet, namespace: dict[str, object]) -> None:
    case = doctest.DocTestParser().get_doctest(
        snippet.text, {}, snippet.place, snippet.page, snippet.line - 1
    )
    case.globs = namespace  # the page's own, not a copy: later snippets see what this one binds
    runner = doctest.DocTestRunner(
        verbose=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    report: list[str] = []
    runner.run(case, out=report.append, clear_globs=False)
    if report:
        pytest.fail(f"{snippet.place}: {''.join(report)}", pytrace=False)


def commands(snippet: Snippet) -> Iterator[tuple[int, str]]:
    """The ``$ outpace`` commands of a console snippet with their lines; a backslash continues."""
    lines = iter(enumerate(snippet.text.splitlines(), start=snippet.line))
    for number, line in lines:
        if not re.match(r"\$ outpace(\s|$)", line):
            continue
        command = line.removeprefix("$ ")
        while command.endswith("\\"):
            command = command[:-1] + next(lines, (0, ""))[1].removeprefix("> ")
        yield number, command


def run_console(snippet: Snippet) -> None:
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": scripts + os.pathsep + os.environ.get("PATH", "")}
    for line, command in commands(snippet):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=CONSOLE_SECONDS_MAX,
            check=False,
        )
        if done.returncode != 0:
            pytest.fail(
                f"{snippet.page}:{line}: `{command}` exited with {done.returncode}\n"
                f"{done.stdout}{done.stderr}",
                pytrace=False,
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_snippets_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Snippets may write files. They run in a folder of their own that shows the examples.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    namespace: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets(str(page.relative_to(PROJECT)), page.read_text(encoding="utf-8")):
        if snippet.language not in ("python", "console") or is_left_out(snippet):
            continue
        if snippet.language == "python":
            run_python(snippet, namespace)
        else:
            run_console(snippet)


def test_a_failing_snippet_names_page_and_line() -> None:
    text = "# Title\n\n```python\nx = 1\n```\n\ntext\n\n```python\ny = x\n\ny / 0\n```\n"
    first, second = snippets("page.md", text)
    namespace: dict[str, object] = {}
    run_python(first, namespace)
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:12: .*ZeroDivisionError"):
        run_python(second, namespace)


def test_a_doctest_snippet_compares_its_output() -> None:
    good, bad = snippets("page.md", "```python\n>>> n = 2\n```\n\n```python\n>>> n\n3\n```\n")
    namespace: dict[str, object] = {}
    run_python(good, namespace)
    with pytest.raises(pytest.fail.Exception, match=r"page\.md:6: "):
        run_python(bad, namespace)


def test_no_run_needs_a_reason() -> None:
    text = "```python no-run needs a cluster\nx\n```\n```python no-run\nx\n```\n"
    reasoned, bare = snippets("page.md", text)
    assert is_left_out(reasoned)
    with pytest.raises(AssertionError, match=r"page\.md:5: "):
        is_left_out(bare)


def test_a_command_goes_on_after_a_backslash() -> None:
    (snippet,) = snippets("page.md", "```console\n$ make demo\n$ outpace a \\\n>   b\nout\n```\n")
    assert list(commands(snippet)) == [(3, "outpace a   b")]


def test_fences_nest_and_may_be_indented() -> None:
    (outer,) = snippets("page.md", "1. step\n   ````text\n   ```python\n   ```\n   ````\n")
    assert (outer.language, outer.text) == ("text", "```python\n```\n")
