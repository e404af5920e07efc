"""What the layering checks share: the project's own source files, and how a check reports."""

import pathlib
import subprocess
import sys

CODE_FOLDERS = ("proto", "common", "kernels", "engine", "kvtransfer", "worker", "prefill", "decode",
                "router", "cli", "tests")
CODE_SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".proto")


def root() -> pathlib.Path:
    return pathlib.Path(sys.argv[1]).resolve()


def source_files(suffixes=CODE_SUFFIXES, folders=CODE_FOLDERS) -> list[pathlib.Path]:
    """Tracked or untracked-but-not-ignored files, relative to the root."""
    listed = subprocess.run(
        ["git", "-C", str(root()), "ls-files", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout.splitlines()
    paths = (pathlib.Path(line) for line in listed)
    return sorted(p for p in paths
                  if p.suffix in suffixes and p.parts[0] in folders and (root() / p).is_file())


def finish(problems: list[str], checked: int, what: str) -> None:
    """Prints every problem, or what was checked; a check that saw nothing fails."""
    if checked == 0:
        problems = [f"no {what} found: the check is broken"]
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)
    print(f"{checked} {what} checked")
