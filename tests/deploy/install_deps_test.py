"""deploy/local/install-deps.sh, with stand-ins for apt-get and dpkg-query that know the package `tool`."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DPKG_QUERY = '#!/bin/sh\nfor last; do :; done\n[ "$last" != tool ] || [ -e {0}/installed ] && echo -n install ok installed\n'
APT_GET = """#!/bin/sh
[ "$1" = install ] || exit 0
echo "The following NEW packages will be installed:"
for percent in 0.0 4.5 10.0 99.9; do echo "dlstatus:1:$percent:Retrieving file 1 of 1"; done
echo "Unpacking tool ..."
echo "pmstatus:tool:55.5:Unpacking tool"
echo "pmstatus:tool:100.0:Installed tool"
{1}
"""


class InstallDeps(unittest.TestCase):
    def install(self, end: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as folder:
            programs = {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET, "sudo": '#!/bin/sh\nexec "$@"\n'}
            for name, script in programs.items():
                file = pathlib.Path(folder, name)
                file.write_text(script.replace("{0}", folder).replace("{1}", end.format(folder)))
                file.chmod(0o755)
            return subprocess.run([ROOT / "deploy/local/install-deps.sh", "tool"], text=True, timeout=60,
                                  capture_output=True, env={"PATH": f"{folder}:{os.environ['PATH']}"})

    def test_progress_is_a_line_for_each_tenth(self):
        shown = self.install("touch {0}/installed")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertEqual(shown.stdout.splitlines(), [
            "Installing, which may take some minutes: tool", "  reading the lists of packages",
            "  downloading: 0 %", "  downloading: 10 %", "  downloading: 90 %",
            "  installing: 50 %", "  installing: 100 %"])

    def test_what_apt_does_not_install_is_named(self):
        shown = self.install("echo 'E: no such package' >&2; exit 100")
        self.assertEqual(shown.returncode, 1)
        self.assertEqual(shown.stderr, "E: no such package\napt-get did not install: tool\n")


if __name__ == "__main__":
    unittest.main()
