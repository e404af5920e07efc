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

missing=""
for package in $packages; do
  case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
    "install ok installed") ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=""
elif command -v sudo >/dev/null; then
  as_root="sudo"
else
  echo "Missing packages, and neither root nor sudo at hand. Install:$missing" >&2
  exit 1
fi
echo "Installing, which may take some minutes:$missing"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing \
  >/dev/null
