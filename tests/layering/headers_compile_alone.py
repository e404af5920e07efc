"""Every header of the project compiles as the only include of a file.

A header that some compiled source includes first has been compiled alone by the build already; the others are compiled
here.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import repository

build = pathlib.Path(sys.argv[2])
commands = json.loads((build / "compile_commands.json").read_text())


def compile_flags(header: pathlib.Path) -> list[str]:
    """Those of a source in the nearest folder: headers are compiled as their neighbours are."""
    folder = header.parent
    while True:
        for entry in commands:
            source = pathlib.Path(entry["file"])
            if source.is_relative_to(repository.root() / folder):
                words = shlex.split(entry["command"])
                return [word for word in words
                        if word.startswith(("-I", "-D", "-std", "-m")) or word == "-isystem"
                        or pathlib.Path(word).is_dir()]
        if folder == pathlib.Path("."):
            raise LookupError(f"{header}: no source is compiled in or above its folder")
        folder = folder.parent


def problem_with(header: pathlib.Path) -> str | None:
    compiled = subprocess.run(
        ["g++", *compile_flags(header), "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
         "-x", "c++", "-"],
        input=f'#include "{header.as_posix()}"\n', capture_output=True, text=True)
    return None if compiled.returncode == 0 else f"{header}:\n{compiled.stderr[:2000]}"


def first_include(source: str) -> str | None:
    match = re.search(r'^#include [<"](.+)[>"]', pathlib.Path(source).read_text(), re.MULTILINE)
    return match and match.group(1)


proven = {first_include(entry["file"]) for entry in commands
          if pathlib.Path(entry["file"]).is_relative_to(repository.root())
          and pathlib.Path(entry["file"]).exists()}
headers = [h for h in repository.source_files((".h",)) if h.as_posix() not in proven]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    problems = [p for p in pool.map(problem_with, headers) if p]
repository.finish(problems, len(headers), "headers")
