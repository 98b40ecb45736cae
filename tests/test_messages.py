"""Some test quotes every message of the commands, the tables and the report."""

import ast
import re
from pathlib import Path

import pytest

import pcsda

SOURCE = Path(pcsda.__file__).parent
TESTS = Path(__file__).parent
# Calls that print messages, besides raised exceptions.
SPEAKING = ("note", "warn", "print")
WORDS = 4


def text_of(node):
    """Return the constant parts of a string, with a mark in place of each value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return "\0"


def messages(path):
    """Yield line and text of each message in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        calls = []
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            calls = node.exc.args
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            calls = node.args if name in SPEAKING else []
        elif isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            calls = [node.value] if len(text_of(node.value).split()) > WORDS else []
        for argument in calls:
            text = text_of(argument).strip("\0\n ")
            if text and not text.startswith("<"):  # markup is not a message
                yield node.lineno, text


def phrases(text):
    """Return patterns of a few consecutive words of a message; values match anything."""
    words = text.split()
    literal = [word.strip("\0.,:;()'") != "" for word in words]
    size = min(WORDS, sum(literal))
    for start in range(len(words)):
        ends = [end for end in range(start, len(words)) if sum(literal[start : end + 1]) == size]
        if literal[start] and ends:
            run = re.escape(" ".join(words[start : ends[0] + 1]))
            yield re.sub("\\\\?\0", ".{1,60}?", run)


@pytest.fixture(scope="module")
def pinned():
    """Return the text of all test expectations, without regex escapes."""
    found = []
    for path in TESTS.rglob("test_*.py"):
        if path != Path(__file__):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [
                text_of(n) for n in ast.walk(tree) if isinstance(n, (ast.Constant, ast.JoinedStr))
            ]
    return " ".join(" ".join(found).replace("\\", "").split())


@pytest.mark.parametrize("part", ["cli", "tables", "report"])
def test_every_message_has_a_test_with_its_words(part, pinned):
    missing = [
        f"{path.name}:{line}: {text!r}"
        for path in sorted((SOURCE / part).glob("*.py"))
        for line, text in messages(path)
        if not any(re.search(run, pinned) for run in phrases(text))
    ]
    assert not missing, "\n".join(["no test has the words of", *missing])
