"""What the documentation names of the Python package is there."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# `ringleader.torch.setup(` and `from ringleader.torch import guard, setup`; `python -m ringleader.profile`.
CALL = re.compile(r"\bringleader((?:\.[A-Za-z_]\w*)+)\(")
IMPORT = re.compile(r"\bfrom (ringleader(?:\.\w+)*) import ([\w, ]+)")
MODULE = re.compile(r"python3? -m (ringleader(?:\.\w+)*)|\bimport (ringleader(?:\.\w+)*)")


def names(text: str) -> set[str]:
    found = {"ringleader" + name for name in CALL.findall(text)}
    for module, imported in IMPORT.findall(text):
        found |= {f"{module}.{name.split()[0]}" for name in imported.split(",") if name.strip()}
    return found | {one or other for one, other in MODULE.findall(text)}


def held(path: pathlib.Path) -> set[str]:
    """Names at the top of a source file. It is read and not imported, so that torch need not be there."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            targets = {target.id for target in node.targets if isinstance(target, ast.Name)}
            # `__all__` also lists what `__getattr__` gives.
            found |= set(ast.literal_eval(node.value)) if "__all__" in targets else targets
    return found


def is_there(name: str) -> bool:
    """Whether a dotted name is a module of the package, or what one of them holds at its top."""
    place = ROOT / "python"
    parts = name.split(".")
    for at, part in enumerate(parts):
        if (place / part / "__init__.py").is_file():
            place /= part
        elif (place / f"{part}.py").is_file():
            return at + 1 == len(parts) or at + 2 == len(parts) and parts[-1] in held(place / f"{part}.py")
        else:
            return at > 0 and at + 1 == len(parts) and part in held(place / "__init__.py")
    return True


def test_names_are_told_apart():
    assert names("`ringleader.torch.setup()`, `python -m ringleader`") == {"ringleader.torch.setup", "ringleader"}
    assert names("from ringleader.torch import guard, setup\n") == {"ringleader.torch.guard", "ringleader.torch.setup"}
    assert names("job ringleader.service, ringleader.explain.v1") == set()
    for name in ["ringleader", "ringleader.diagnose", "ringleader.torch", "ringleader.torch.setup", "ringleader.profile"]:
        assert is_there(name), name
    for name in ["ringlead", "ringleader.setup", "ringleader.torch.no_such_name", "ringleader.torch.setup.more"]:
        assert not is_there(name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_the_documentation_exist(page):
    missing = sorted(name for name in names(page.read_text(encoding="utf-8")) if not is_there(name))
    assert not missing, f"{page.name} names what is not there: {missing}"


def test_the_documentation_names_some():
    found = set().union(*(names(page.read_text(encoding="utf-8")) for page in PAGES))
    assert {"ringleader.torch.setup", "ringleader.torch.guard"} <= found
