"""Who may import whom: lower rooms never import upper ones, nor scikit-learn's private modules."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pcsda

ROOT = Path(__file__).parents[1]
TOOLS = {"partition", "kernels", "folds", "metrics", "normalization", "datasets", "tables"}
ON_TOP = {
    "plots",
    "blocks",
    "distributed",
    "persistence",
    "onnx_export",
    "report",
    "retrieval",
    "scoring",
}
# Each row may import from the rows before it. A new room is placed here by hand, on purpose.
ROWS = [
    {"core.linalg"},
    {"core"},
    {"progress", "validation", "targets", "writing", "unwrap", "memory", "archive", "documented"},
    TOOLS,
    {"maps"},
    {"estimators"},
    ON_TOP,
    {"cli"},
    {"__main__"},
    {"__init__"},
]
ROW = {room: row for row, rooms in enumerate(ROWS) for room in rooms}
CORE_MAY_USE = {"numpy", "scipy", "threadpoolctl", *sys.stdlib_module_names}
PUBLIC = {"datasets", "distributed", "metrics", "normalization", "plots", "report", "__init__"}


def imported(source, package):
    """Return the absolute dotted names of all imports, including those inside functions."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")
            base = base[: len(base) - node.level + 1] if node.level else []
            base += [node.module] if node.module else []
            yield from (".".join([*base, alias.name]) for alias in node.names)


def statements(tree):
    """Yield all statements, which takes half as long as to walk through expressions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield node
            yield from statements(node)


def room_of(name):
    """Return the room of `pcsda.room.name`; a name of the package itself comes from `__init__`."""
    parts = name.split(".")[1:]
    if parts[:2] == ["core", "linalg"]:
        return "core.linalg"
    return parts[0] if parts and parts[0] in ROW else "__init__"


def faults(module, source, package="pcsda"):
    """Return a file's faults; `module` is its dotted name in the package, or None outside it."""
    room = room_of(f"pcsda.{module}") if module else None
    if module and module != "__init__" and room == "__init__":
        yield f"pcsda.{module} has no place yet: give it a row in tests/test_imports.py"
        return
    for name in imported(source, package):
        top, *rest = name.split(".")
        if top == "sklearn" and any(p.startswith("_") and not p.endswith("__") for p in rest):
            yield f"{name} is private to scikit-learn"
        if top == "pcsda" and room:
            other = room_of(name)
            if ROW[other] > ROW[room] or ({room, other} <= TOOLS and room != other):
                yield f"pcsda.{module} may not import {name}"
        elif room in ROWS[0] | ROWS[1] and top not in CORE_MAY_USE:
            yield f"the core may not import {name}: NumPy, SciPy and the standard library only"


def public_faults(source):
    """Return what an example or a benchmark imports beyond public names."""
    for name in imported(source, ""):
        if name.split(".")[0] == "pcsda" and room_of(name) not in PUBLIC:
            yield f"{name} is not a public name"


def python_files(*folders):
    files = [f for folder in folders for f in sorted((ROOT / folder).rglob("*.py"))]
    return [pytest.param(f, id=f.relative_to(ROOT).as_posix()) for f in files]


def faults_of(path):
    source, module, package = path.read_text(encoding="utf-8"), None, ""
    if path.is_relative_to(ROOT / "src"):
        *package, stem = path.relative_to(ROOT / "src").with_suffix("").parts
        # A subpackage's own __init__ stands in the room of the subpackage.
        module = ".".join(package[1:] + [stem] * (stem != "__init__")) or "__init__"
        package = ".".join(package)
    return list(faults(module, source, package))


@pytest.mark.parametrize(
    "folder", ["src", pytest.param("tests", marks=pytest.mark.more), "examples", "benchmarks"]
)
def test_every_file_imports_only_what_its_room_may(folder):
    found = {path: faults_of(path) for path in (ROOT / folder).rglob("*.py")}
    assert len(found) > 5
    assert {path.name: broken for path, broken in found.items() if broken} == {}


@pytest.mark.parametrize("path", python_files("examples", "benchmarks"))
def test_examples_and_benchmarks_use_public_names_only(path):
    assert list(public_faults(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("module", "package", "source"),
    [
        ("core.linalg", "pcsda.core", "from .scatter import GroupScatter"),
        ("core.scatter", "pcsda.core", "from ..partition import split"),
        ("core.scatter", "pcsda.core", "import sklearn.base"),
        ("core.scatter", "pcsda.core", "def late():\n    import joblib"),
        ("metrics", "pcsda", "from pcsda.datasets import make_class_specific"),
        ("metrics", "pcsda", "from . import estimators"),
        ("folds", "pcsda", "from .partition import nearest"),
        ("maps", "pcsda", "from .estimators import KernelPCSDA"),
        ("estimators", "pcsda.estimators", "from pcsda import plots"),
        ("estimators.bank", "pcsda.estimators", "from pcsda import PCSDA"),
        ("estimators.bank", "pcsda.estimators", "from ..blocks import fit_blocks"),
        ("estimators", "pcsda", "from sklearn.utils._param_validation import Interval"),
        ("estimators", "pcsda", "from sklearn.utils import _metadata_requests"),
        ("plots", "pcsda", "from . import cli"),
        ("utils", "pcsda", ""),
        (None, "", "import sklearn.discriminant_analysis._x"),
    ],
)
def test_a_forbidden_import_is_detected(module, package, source):
    assert len(list(faults(module, source, package))) == 1


@pytest.mark.parametrize(
    ("module", "package", "source"),
    [
        ("core.scatter", "pcsda.core", "import math\nimport scipy.linalg\nfrom . import linalg"),
        ("core.solvers", "pcsda.core", "from pcsda.core.scatter import GroupScatter"),
        ("core", "pcsda.core", "from .scatter import GroupScatter"),
        (
            "estimators.linear",
            "pcsda.estimators",
            "from ..core import solvers\nfrom .. import folds",
        ),
        ("estimators.bank", "pcsda.estimators", "from .linear import PCSDA\nfrom ..maps import X"),
        ("report", "pcsda", "from .plots import SubspaceDisplay\nfrom sklearn import __version__"),
        ("__init__", "pcsda", "from . import datasets\nfrom .estimators import PCSDA"),
    ],
)
def test_allowed_imports_pass(module, package, source):
    assert list(faults(module, source, package)) == []


def test_examples_may_not_reach_into_the_core():
    assert list(public_faults("from pcsda import PCSDA, metrics")) == []
    assert len(list(public_faults("from pcsda.core import solvers"))) == 1


OPTIONAL = {
    *("dask", "distributed", "matplotlib", "onnx", "onnxruntime", "pandas", "plotly", "pyarrow"),
    *("rich", "skl2onnx", "skops"),
}


def modules_after(*statements):
    """Return the modules that a fresh process has loaded after each statement."""
    code = "import sys\n" + "".join(f"{line}\nprint(*sys.modules)\n" for line in statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_importing_pcsda_is_light_and_other_rooms_load_on_demand():
    late = {f"pcsda.{room}" for room in PUBLIC - {"datasets", "metrics", "__init__"}}
    late |= {"pcsda.blocks", "pcsda.onnx_export", "pcsda.persistence"}
    # scikit-learn itself may import some optional packages where they are installed.
    sklearn, _, plain, some, distributed = modules_after(
        "import sklearn.cluster",
        # Classes are named after the package, wherever they are imported from.
        "from pcsda.core.threshold import Threshold\n"
        "from pcsda.maps import FourierMap\n"
        "from pcsda.estimators.linear import PCSDA\n"
        "assert {c.__module__ for c in (Threshold, FourierMap, PCSDA)} == {'pcsda'}",
        "from pcsda import PCSDA, NystroemMap, Threshold, datasets, metrics",
        "from pcsda import fit_blocks, plots",
        "import pcsda; assert pcsda.distributed.fit",
    )
    assert plain & OPTIONAL <= sklearn
    assert not plain & late
    assert some & late == {"pcsda.blocks", "pcsda.plots"}
    assert distributed & {"dask", "distributed"} <= sklearn


def test_version_and_help_load_no_numerical_libraries():
    *_, loaded = modules_after(
        "from pcsda.cli import main",
        "try:\n    main(['--version'])\nexcept SystemExit:\n    pass",
    )
    assert "pcsda.cli" in loaded
    assert not loaded & {"numpy", "scipy", "sklearn", "pandas", "joblib"}


def test_dir_shows_only_public_names_and_what_python_needs():
    shown = set(dir(pcsda))
    assert {name for name in shown if not re.fullmatch("__.+__", name)} == set(pcsda.__all__)
    assert {"__all__", "__doc__", "__file__", "__name__", "__version__"} <= shown


def test_all_public_names_exist_and_no_others():
    for name in pcsda.__all__:
        assert getattr(pcsda, name).__name__ in (name, f"pcsda.{name}")
    with pytest.raises(AttributeError, match=r"^module 'pcsda' has no attribute 'fit_everything'$"):
        pcsda.fit_everything  # noqa: B018


def test_the_contributors_map_names_every_module():
    """CONTRIBUTING.md names each module, or its folder as a whole."""
    source, text = ROOT / "src/pcsda", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(r"^```\nsrc/pcsda/\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    known = set(re.findall(r"[\w/]+\.py|\w+/", found[1]))
    for path in source.rglob("*.py"):
        folder = path.parent.name
        whole = path.parent != source and folder not in ("core", "estimators")
        assert path.name == "__init__.py" or (f"{folder}/" if whole else path.name) in known, path
    names = {path.name for path in source.rglob("*.py")}
    assert {name for name in known if name.endswith(".py")} <= names
