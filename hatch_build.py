"""Hatchling's hook: the wheel holds the library of kernels, compiled for this platform, and the jars for Spark.

The jars are the same for every platform, and each is compiled with a Spark of its own, of some 400 MB: `make jars` puts
them into the tree, sdist and wheel take them from there, and without them sawlog compiles one where it runs. So neither
an installation from the sdist nor one of a checkout fetches Spark.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILER = ("numba>=0.63",)
MACHINES = ("aarch64", "arm64", "x86_64")
"""Those that kernels are compiled for. Elsewhere the wheel is plain Python, and the extra `jit` compiles them."""
_IMPORTED = ("fsspec", "numpy", "pyarrow", "xxhash")
"""Dependencies of the package that modules with kernels import."""
_BUILD = "import sys; sys.path.insert(0, sys.argv.pop(1)); from sawlog.kernels.build import main; main()"
"""An isolated build drops from `sys.path`, and so from PYTHONPATH, where an editable installation of before leads."""


class KernelsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the kernels, unless the library in the tree was made from the same sources."""

    PLUGIN_NAME = "custom"

    _made = ""
    """A folder of our own with the library."""

    def dependencies(self) -> list[str]:
        """What compiles them, what their modules import, and a linker where the machine has none: for wheels alone."""
        if self.target_name != "wheel" or platform.machine() not in MACHINES:
            return []
        metadata = self.metadata.core.dependencies_complex.values()
        imported = [str(one) for one in metadata if one.name in _IMPORTED]
        return [*_COMPILER, *imported, *([] if shutil.which(_linker()) else ["ziglang>=0.13"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the wheel, editable ones included, is put together.

        The library stays in the tree, for the next time. Where that cannot be written to, only the wheel gets it; an
        editable installation has none then, and says so when kernels are needed.
        """
        if self.target_name != "wheel":
            return
        build_data["artifacts"].append("src/sawlog/_jars/*")
        if platform.machine() not in MACHINES:
            return
        source = os.path.join(self.root, "src")
        command = [sys.executable, "-c", _BUILD, source, "--if-needed"]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        build_data["artifacts"].append("src/sawlog/_native/*")
        if not os.access(os.path.join(source, "sawlog"), os.W_OK):
            if version == "editable":
                return
            self._made = tempfile.mkdtemp()
            command += ["--folder", self._made]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, env=environment, cwd=self.root, check=True)  # noqa: S603 # our own
        if made := os.listdir(self._made) if self._made else []:
            build_data["artifacts"].remove("src/sawlog/_native/*")
            build_data["force_include"] |= {os.path.join(self._made, one): f"sawlog/_native/{one}" for one in made}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """When it is."""
        if self._made:
            shutil.rmtree(self._made)
            self._made = ""


def _linker() -> str:
    return (os.environ.get("CC", "cc").split() or ["cc"])[0]


def _platform() -> str:
    """The platform of the wheel. On Linux the library needs nothing of any C library but what all of them have."""
    tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if platform.system() == "Linux":
        machine = tag.removeprefix("linux_")
        return f"manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return tag
