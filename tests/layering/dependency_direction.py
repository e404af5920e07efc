"""Includes follow the dependency table; CUDA headers and getenv stay in their places."""

import re

import repository

# Longest matching prefix wins. A folder may include itself and what stands here.
MAY_INCLUDE = {
    "common/base": [],
    "common": ["common/base"],
    "common/tls": ["common", "common/base"],
    "common/rpc": ["common", "common/base", "common/tls", "baton/v1"],
    "kernels": ["common/base"],
    "engine": ["kernels", "common", "common/base"],
    "kvtransfer": ["kernels", "common", "common/base"],
    "kvtransfer/grpc": ["kvtransfer", "kernels", "common", "common/base", "common/rpc", "baton/v1"],
    "cli": ["router/tokenizer", "common", "common/base", "common/rpc", "common/tls", "baton/v1"],
    "cli/needle": ["cli", "router/tokenizer", "router/chat", "common", "common/base"],
    "router": ["common", "common/base", "common/rpc", "common/tls", "baton/v1"],
    "router/tokenizer": ["common", "common/base"],
    "router/chat": ["router/tokenizer", "common", "common/base"],
    "worker": ["engine", "kvtransfer", "kvtransfer/grpc", "common", "common/base", "common/rpc",
               "baton/v1"],
    "prefill": ["worker", "engine", "kvtransfer", "kvtransfer/grpc", "kernels/runtime", "common",
                "common/base", "common/rpc", "baton/v1"],
    "decode": ["worker", "engine", "kvtransfer", "kvtransfer/grpc", "kernels/runtime", "common",
               "common/base", "common/rpc", "baton/v1"],
}
# Folders whose sub-folders are one box unless listed above.
CUDA_HOMES = ("kernels/", "kvtransfer/cuda_ipc/", "kvtransfer/nccl/")
CUDA_HEADER = re.compile(r"#include [<\"](cuda|cublas|nccl|cub/|cutlass/|cute/)")
GRPC_HEADER = re.compile(r"#include [<\"](grpc|grpcpp|baton/v1)/")
GRPC_FREE = ("common/", "kernels/", "engine/", "kvtransfer/", "router/tokenizer/", "router/chat/")
GRPC_HOMES = ("common/rpc/", "kvtransfer/grpc/")
# In cli: NO_COLOR and TERM, and the key that no flag may show.
GETENV_HOMES = ("common/config", "cli/terminal.cc", "cli/api_key.cc")
# Includes of these, and bare names such as "cblas.h", are not ours.
LIBRARIES = ("absl/", "google/", "grpc/", "grpcpp/", "spdlog/", "yaml-cpp/", "CLI/", "nlohmann/",
             "boost/", "prometheus/", "openssl/")
INCLUDE = re.compile(r'#include "([^"]+)"')


def box_of(path: str) -> str | None:
    folders = [f for f in MAY_INCLUDE if path.startswith(f + "/")]
    return max(folders, key=len) if folders else None


def include_target(include: str) -> str | None:
    return "baton/v1" if include.startswith("baton/v1/") else box_of(include)


def is_library(include: str) -> bool:
    return include.startswith(LIBRARIES) or "/" not in include


problems = []
files = [f for f in repository.source_files((".h", ".cc", ".cu", ".cuh")) if f.parts[0] != "tests"]
for file in files:
    name, box = file.as_posix(), box_of(file.as_posix())
    if box is None:
        problems.append(f"{name}: folder is not in the dependency table")
        continue
    text = (repository.root() / file).read_text()
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        if match := INCLUDE.match(line):
            target = include_target(match[1])
            if is_library(match[1]):
                continue
            if target is None:
                problems.append(f'{where}: "{match[1]}" is not rooted at the repository')
            elif target != box and target not in MAY_INCLUDE[box] \
                    and not (box == "router" and target.startswith("router/")):
                problems.append(f"{where}: {box} may not include {target}")
        if CUDA_HEADER.match(line) and not name.startswith(CUDA_HOMES):
            problems.append(f"{where}: CUDA header outside {', '.join(CUDA_HOMES)}")
        if GRPC_HEADER.match(line) and name.startswith(GRPC_FREE) \
                and not name.startswith(GRPC_HOMES):
            problems.append(f"{where}: gRPC outside {', '.join(GRPC_HOMES)}")
        if re.search(r"\bgetenv\b", line) and not name.startswith(GETENV_HOMES):
            problems.append(f"{where}: getenv outside {', '.join(GETENV_HOMES)}")
repository.finish(problems, len(files), "source files")
