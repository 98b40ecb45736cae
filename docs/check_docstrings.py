"""Hold the docstrings of all public names against numpydoc's checks; `make lint` runs this.

Public names are those in `docs/api` and the public methods of these classes.
"""

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate

HERE = Path(__file__).parent
# Not SS05: it takes "Minus the distance ..." for a verb. Not PR07: a shape can say it all.
CODES = {
    *("GL01", "GL03", "GL05", "GL06", "GL07", "GL08", "GL10"),
    *("SS01", "SS02", "SS03", "SS04"),
    *("PR01", "PR02", "PR03", "PR05", "PR10"),
    *("RT01", "YD01", "EX01"),
}
# The class shows its methods in one example, and "Class labels of samples." needs no Returns.
CODES_OF_METHODS = CODES - {"EX01", "RT01"}


def documented_names() -> Iterator[str]:
    """Full names in the tables of the reference."""
    module = "pcsda"
    pages = sorted((HERE / "api").glob("*.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    for line in text.splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif found := re.fullmatch(r"   ([A-Za-z_][\w.]*)", line):
            yield f"{module}.{found[1]}"


def value_of(name: str) -> object:
    """Return what a full name stands for."""
    path, *parts = name.split(".")
    value: object = import_module(path)
    for part in parts:
        path = f"{path}.{part}"
        if inspect.ismodule(value) and not hasattr(value, part):
            import_module(path)
        value = getattr(value, part)
    return value


def methods(kind: type) -> Iterator[str]:
    """Public methods and properties that our code defines, in the class or in a base."""
    for name in dir(kind):
        home = next(base for base in kind.__mro__ if name in vars(base))
        member = vars(home)[name]
        ours = home.__module__.partition(".")[0] == "pcsda" and not name.startswith("_")
        # scikit-learn makes and documents set_fit_request and its like.
        made = re.fullmatch("set_.*_request", name)
        if ours and not made and (callable(member) or hasattr(member, "__get__")):
            yield name


def sections(docstring: str) -> NumpyDocString:
    """Return the parts of a docstring."""
    return NumpyDocString(inspect.cleandoc(docstring))


def failures(name: str) -> Iterator[tuple[str, str, str]]:
    """Name, code and message of each check that a name and its methods fail."""
    value = value_of(name)
    for code, message in validate(name)["errors"]:
        if code in CODES and not (code == "PR01" and fields_are_attributes(value)):
            yield name, code, message
    for method in methods(value) if inspect.isclass(value) else ():
        found = validate(f"{name}.{method}")
        # A method may leave its parameters to its class, but not some of them.
        silent = not sections(found["docstring"])["Parameters"]
        for code, message in found["errors"]:
            if code in CODES_OF_METHODS and not (code == "PR01" and silent):
                yield f"{name}.{method}", code, message


def fields_are_attributes(value: object) -> bool:
    """Tell whether a dataclass that users only read has all its fields under Attributes."""
    if not (inspect.isclass(value) and dataclasses.is_dataclass(value)):
        return False
    listed = sections(value.__doc__ or "")["Attributes"]
    names = {name.strip() for entry in listed for name in entry.name.split(",")}
    return names >= {field.name for field in dataclasses.fields(value)}


def main() -> int:
    """Print what fails."""
    found = [failure for name in sorted(documented_names()) for failure in failures(name)]
    for name, code, message in found:
        print(f"{name} {code}: {message}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
