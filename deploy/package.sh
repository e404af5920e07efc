#!/usr/bin/env bash
# Packs built binaries, the libraries that a bare node lacks, configurations, units of systemd and the small model:
#   deploy/package.sh build/release/bin baton.tar.gz [binary...]
# The archive starts wherever it is unpacked. Workers built where nvcc was found need CUDA 13's libraries on
# the node, also for --device=cpu; configure with -DBATON_CUDA=OFF for nodes that have none.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$1
archive=$2
shift 2
binaries=("$@")
[ ${#binaries[@]} -gt 0 ] || binaries=(baton baton-router baton-prefill baton-decode baton-recall)

# Every Linux of the last years has these, and newer ones serve older binaries; or the CUDA image has them.
provided='^(linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s|cuda|cudart|cublas|cublasLt|nccl)\.so)'

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
package=$root/baton
mkdir -p "$package/bin" "$package/lib"
for binary in "${binaries[@]}"; do
  [ -x "$source/$binary" ] || { echo "package.sh: $source/$binary is not built" >&2; exit 1; }
  # A wrapper sets where libraries are found, so that no tool has to rewrite the binary.
  cp "$source/$binary" "$package/lib/$binary.bin"
  strip --strip-debug "$package/lib/$binary.bin"
  cat > "$package/bin/$binary" <<'WRAPPER'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$here/../lib/$(basename "$0").bin" "$@"
WRAPPER
  chmod +x "$package/bin/$binary"
  ldd "$source/$binary" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }'
done | sort -u > "$root/libraries"
while read -r name path; do
  [[ $name =~ $provided ]] || cp -L "$path" "$package/lib/$name"
done < "$root/libraries"
missing=$(for b in "$package"/lib/*.bin; do LD_LIBRARY_PATH=$package/lib ldd "$b" | grep 'not found' || true; done)
[ -z "$missing" ] || { echo "package.sh: libraries are missing: $missing" >&2; exit 1; }
cp -r deploy/configs deploy/systemd "$package/"
mkdir -p "$package/models"
cp -r models/needle-17m "$package/models/"
cp LICENSE "$package/"
cat > "$package/README" <<'START'
Baton: a prefill/decode disaggregated serving cluster. Every binary has --help; every flag can stand in a YAML file (configs/).
systemd/ has units for a machine where this is /opt/baton, with links to bin/* in /usr/bin and configs/* in /etc/baton.

  bin/baton up --model-dir=models/needle-17m --prefill=1 --decode=1   # a cluster on this machine, until Ctrl-C
  bin/baton chat                                                      # in another terminal; see also baton top, baton bench

The same as single processes, as on several machines:

  bin/baton-prefill --model-dir=models/needle-17m --listen=127.0.0.1:7001 --metrics-listen=127.0.0.1:9001 &
  bin/baton-decode  --model-dir=models/needle-17m --listen=127.0.0.1:7002 --metrics-listen=127.0.0.1:9002 &
  bin/baton-router  --model-dir=models/needle-17m --prefill-workers=127.0.0.1:7001 --decode-workers=127.0.0.1:7002 &
  curl -s localhost:8000/health

Workers take --device=cuda on a node with an NVIDIA H100 or H200, its driver and CUDA 13. SIGTERM drains.
START
# Whoever packs, with whatever umask: where root unpacks it everybody may run it, and only root change it.
tar -C "$root" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -czf "$archive" baton
echo "$archive: $(du -h "$archive" | cut -f1)"
