"""Every *_test.cc, *_test.py and *_bench.cc is named by a CMakeLists.txt in or above its folder."""

import repository

problems = []
files = [f for f in repository.source_files((".cc", ".cu", ".py"), ("tests",))
         if f.stem.endswith(("_test", "_bench"))]
for file in files:
    # A .cc is listed by file name; a group of Python tests may be listed by stem.
    listings = [(repository.root() / folder / "CMakeLists.txt") for folder in file.parents]
    words = " ".join(l.read_text() for l in listings if l.is_file()).replace("(", " ").split()
    names = [word.strip(")").rsplit("/")[-1] for word in words]
    if file.name not in names and file.stem not in names:
        problems.append(f"{file}: not registered in a CMakeLists.txt")
repository.finish(problems, len(files), "tests and benches")
