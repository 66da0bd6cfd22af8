"""Where the packages stand: `pyproject.toml` says the rest.

`ir`, `dialects`, `translate` and `backends` stand at the root and install as `stepwell.ir` and so
on. In a checkout, links in `src/stepwell` lead there; a clone without symbolic links (the default
on Windows) and an sdist have none. So what is built takes each folder from where it is.
"""

from pathlib import Path

from setuptools import find_namespace_packages, find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

FOLDERS = ("ir", "dialects", "translate", "backends")
ROOT = Path(__file__).resolve().parent
FRONT = ROOT / "src" / "stepwell"

missing = [name for name in FOLDERS if not (ROOT / name / "__init__.py").is_file()]
if missing:
    raise SystemExit(
        f"stepwell: {', '.join(missing)} is not beside setup.py: the tree is not whole"
    )

own = [name for name in find_packages("src") if name.split(".")[1:2] not in [[f] for f in FOLDERS]]
own.append("stepwell.inspection.viewer.parts")  # Scripts of the page, and no code.
below = [f"stepwell.{name}" for name in find_packages(str(ROOT)) if name.split(".")[0] in FOLDERS]
shown = [f"stepwell.examples.{name}" for name in find_namespace_packages(str(ROOT / "examples"))]


class InPlace(editable_wheel):
    """With links in place, a path to `src` is all that an editable install needs."""

    def run(self) -> None:
        if all((FRONT / name / "__init__.py").is_file() for name in FOLDERS):
            self.distribution.package_dir = {"": "src"}
            self.distribution.packages = [*own, *below]  # Examples are read where they stand.
        super().run()


setup(
    packages=[*own, *below, "stepwell.examples", *shown],
    package_dir={
        "": "src",
        **{f"stepwell.{name}": name for name in FOLDERS},
        "stepwell.examples": "examples",
    },
    cmdclass={"editable_wheel": InPlace},
)
