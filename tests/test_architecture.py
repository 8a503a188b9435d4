"""The shape of the program: imports point down the layers of ARCHITECTURE.md, public names are documented."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import aptinfer as apt

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "aptinfer"


def layers() -> dict[str, int]:
    """Module or folder -> its line in the list of ARCHITECTURE.md, counted from the top."""
    listed = re.search(r"```layers\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.S)
    assert listed, "ARCHITECTURE.md has no block of layers"
    return {name: i for i, line in enumerate(listed[1].splitlines()) for name in line.split()}


def layer_of(module: str) -> int | None:
    """The line on which a dotted name below `aptinfer` stands, or else its folder."""
    parts = module.split(".")
    known = layers()
    for length in range(len(parts), 0, -1):
        if (line := known.get(".".join(parts[:length]))) is not None:
            return line
    return None


def modules() -> dict[str, Path]:
    """Dotted names below `aptinfer`, and their files; the package's own __init__ only names things."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            found[name] = path
    return found


def imports(path: Path) -> set[str]:
    """What a file imports from this package, also inside functions, but not for type checkers alone."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                visit(child)
            return
        if isinstance(node, ast.ImportFrom) and node.module == "aptinfer":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aptinfer."):
            module = (node.module or "").removeprefix("aptinfer.")
            full = {f"{module}.{alias.name}" for alias in node.names} & set(modules())
            found.update(full or {module})
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names if alias.name.startswith("aptinfer."))
            found.update(name.removeprefix("aptinfer.") for name in names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def test_every_layer_exists():
    assert {name for name in layers() if name not in modules()} == set()


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module):
    own = layer_of(module)
    assert own is not None, f"ARCHITECTURE.md puts {module} in no layer"
    lines = {name: layer_of(name) for name in imports(modules()[module])}
    upward = [name for name, line in lines.items() if line is not None and line < own]
    assert upward == [], f"{module} imports from layers above it"


def test_an_upward_import_is_seen(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from aptinfer.train import History\n"
        "def f():\n    from aptinfer.run import infer\n"
        "from aptinfer.methods import losses\n"
    )
    assert imports(file) == {"run", "methods.losses"}


@pytest.mark.parametrize("name", [name for name in apt.__all__ if name != "__version__"])
def test_public_names_have_docstrings(name):
    value = getattr(apt, name)
    own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    # A dataclass without a docstring is given its own signature for one.
    assert own
    assert not own.startswith(f"{name}("), f"{name} has no docstring of its own"
