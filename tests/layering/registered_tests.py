"""Every *_test.cc, *_test.py and *_bench.cc is named by a CMakeLists.txt of its folder."""

import repository

problems = []
files = [f for f in repository.source_files((".cc", ".cu", ".py"), ("tests",))
         if f.stem.endswith(("_test", "_bench"))]
for file in files:
    cmake = repository.root() / file.parent / "CMakeLists.txt"
    # A .cc is listed by file name; a group of Python tests may be listed by stem.
    registered = cmake.is_file() and (file.name in cmake.read_text() or
                                      file.stem in cmake.read_text().split())
    if not registered:
        problems.append(f"{file}: not registered in {file.parent}/CMakeLists.txt")
repository.finish(problems, len(files), "tests and benches")
