"""Every C++ file is as clang-format leaves it."""

import subprocess

import repository

files = repository.source_files((".h", ".cc", ".cu", ".cuh"))
checked = subprocess.run(["clang-format-14", "--dry-run", "-Werror", *files],
                         cwd=repository.root(), capture_output=True, text=True)
repository.finish([checked.stderr] if checked.returncode else [], len(files), "C++ files")
