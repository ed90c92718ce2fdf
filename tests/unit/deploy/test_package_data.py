"""Folders with files only are named as packages with data: setuptools prints twenty lines of warnings for each other one."""

from __future__ import annotations

import configparser

from tests.support import ROOT


def test_every_folder_of_files_is_declared() -> None:
    read = configparser.ConfigParser()
    read.read(ROOT / "setup.cfg")
    declared = read["options.package_data"]
    assert read["options"]["packages"] == "find_namespace:"
    folders = {
        str(path.parent.relative_to(ROOT)).replace("/", ".")
        for top in ("actors", "pixy")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and not (path.parent / "__init__.py").exists()
    }
    assert folders and folders <= set(declared)
