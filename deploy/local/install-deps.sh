#!/bin/sh
# install-deps.sh [--tests] [PACKAGE...]
# Installs what building Baton and running the demo needs on Debian 12 or Ubuntu 24.04, with --tests
# what its tests and benches need too, and the packages named: as root, or through sudo. Does nothing
# when everything is there.
set -eu

tests=""
if [ "${1:-}" = --tests ]; then
  tests="libgtest-dev libgmock-dev libbenchmark-dev clang-format-14 python3-venv
    iproute2 nftables openssl prometheus"
  shift
fi

# Debian 12's default Boost is older than the coroutine support that the HTTP front end uses.
case "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" in
  bookworm) boost=libboost1.81-dev ;;
  *) boost=libboost-dev ;;
esac

packages="g++ cmake ninja-build make git pkg-config ccache
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libabsl-dev
  prometheus-cpp-dev $boost nlohmann-json3-dev libpcre2-dev libspdlog-dev libyaml-cpp-dev
  libcli11-dev libssl-dev libcurl4-openssl-dev zlib1g-dev python3 curl $tests $*"

missing() {
  for package in $packages; do
    case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
      "install ok installed") ;;
      *) printf " %s" "$package" ;;
    esac
  done
}

# A line for every tenth of the way, from apt's lines "dlstatus:3:41.6:..." and "pmstatus:g++:80.1:...".
progress() {
  shown=""
  while IFS=: read -r kind _ percent _; do
    case "$kind" in
      dlstatus) step="downloading" ;;
      pmstatus) step="installing" ;;
      *) continue ;;
    esac
    whole=${percent%%.*}
    now="$step: ${whole%?}0 %"
    [ "$now" = "$shown" ] || echo "  $now"
    shown="$now"
  done
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=""
elif command -v sudo >/dev/null; then
  as_root="sudo"
else
  echo "Missing packages, and neither root nor sudo at hand. Install:$wanted" >&2
  exit 1
fi
echo "Installing, which may take some minutes:$wanted"
echo "  reading the lists of packages"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -y -q \
  --no-install-recommends -o APT::Status-Fd=1 $wanted | progress
wanted=$(missing)
[ -z "$wanted" ] || { echo "apt-get did not install:$wanted" >&2; exit 1; }
