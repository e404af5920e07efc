"""Everything under deploy/ is read by the program it is written for, or by a checker of its kind."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:  # of kubernetes-validate
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
MODEL = ROOT / "models/needle-17m"
BINARIES = pathlib.Path(os.environ["BATON_BINARIES"])
TOOLS = pathlib.Path(sys.executable).parent
ROLES = ("router", "prefill", "decode")


def check_config(role: str, path: pathlib.Path) -> subprocess.CompletedProcess:
    # The model is looked at, too; what workers advertise is given where they run.
    known = [f"--model-dir={MODEL}", *([] if role == "router" else ["--advertise=worker.example:7000"])]
    return subprocess.run([BINARIES / f"baton-{role}", f"--config={path}", "--check-config", *known],
                          capture_output=True, text=True)


def embedded_config(manifest: pathlib.Path, name: str) -> str:
    """The block scalar `name: |` of a ConfigMap, without its indentation."""
    match = re.search(rf"^  {re.escape(name)}: \|\n((?:    .*\n|\n)+)", manifest.read_text(), re.M)
    return re.sub(r"^    ", "", match[1], flags=re.M)


def apply_json_patch(document: dict, patch: list[dict]) -> None:
    """What of RFC 6902 the patches use: add, replace and remove, "-" for the end of a list."""
    for operation in patch:
        *parents, last = operation["path"].strip("/").split("/")
        place = document
        for key in parents:
            place = place[int(key) if isinstance(place, list) else key]
        if operation["op"] == "remove":
            del place[last]
        elif isinstance(place, list) and operation["op"] == "add":
            assert last == "-", operation
            place.append(operation["value"])
        elif isinstance(place, list):
            place[int(last)] = operation["value"]
        else:
            assert operation["op"] == "add" or last in place, operation
            place[last] = operation["value"]


def patches_of(component: pathlib.Path, kind: str, name: str) -> list[list[dict]]:
    """Those of a kustomization that are meant for the object, as lists of operations."""
    found = []
    for patch in yaml.safe_load((component / "kustomization.yaml").read_text())["patches"]:
        target = patch["target"]
        if re.fullmatch(target["kind"], kind) and re.fullmatch(target["name"], name):
            found.append(yaml.safe_load(patch["patch"] if "patch" in patch
                                        else (component / patch["path"]).read_text()))
    return found


class DeploymentFiles(unittest.TestCase):
    def test_binaries_accept_the_shipped_configurations(self):
        for role in ROLES:
            with self.subTest(role):
                checked = check_config(role, DEPLOY / f"configs/{role}.yaml")
                self.assertEqual(checked.returncode, 0, checked.stderr)
                self.assertIn("model-dir = ", checked.stdout)

    def test_binaries_accept_the_configurations_inside_kubernetes_manifests(self):
        for role in ROLES:
            with self.subTest(role), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(embedded_config(DEPLOY / f"k8s/{role}.yaml", f"{role}.yaml"))
                file.flush()
                checked = check_config(role, pathlib.Path(file.name))
                self.assertEqual(checked.returncode, 0, checked.stderr)

    def accept(self, line: list[str], config: pathlib.Path):
        """The binary takes its arguments, as a unit or a manifest has them, with this file as its configuration."""
        for variable, value in (("%H", "host.example"), ("%i", "1"), ("$(POD_IP)", "10.0.0.1"), ("$(POD_NAME)", "pod-0"),
                                ("$(RANK)", "1")):
            line = [word.replace(variable, value) for word in line]
        self.assertFalse([word for word in line if "$" in word or "%" in word])
        program, given, *flags = line
        self.assertEqual(given, f"--config=/etc/baton/{program.removeprefix('baton-')}.yaml")
        flags = [flag for flag in flags if flag != "--device=cuda"]  # which builds for CPUs refuse
        checked = subprocess.run([BINARIES / program, f"--config={config}", *flags, f"--model-dir={MODEL}",
                                  "--check-config"], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_units_start_what_accepts_their_flags(self):
        units = sorted((DEPLOY / "systemd").glob("*.service"))
        self.assertEqual(len(units), 4)
        for unit in units:
            with self.subTest(unit.name):
                text = unit.read_text().replace("\\\n", " ")
                [line] = re.findall(r"^ExecStart=/usr/bin/(.*)$", text, re.M)
                role = line.split()[0].removeprefix("baton-")
                self.accept(line.split(), DEPLOY / f"configs/{role}.yaml")

    @unittest.skipUnless(yaml, "see tests/requirements.txt")
    def test_manifests_start_what_accepts_their_flags(self):
        for folder, kind in (("k8s", "Deployment"), ("k8s-ranks", "StatefulSet")):
            for manifest in (DEPLOY / folder).glob("*.yaml"):
                for document in yaml.safe_load_all(manifest.read_text()):
                    if document["kind"] != kind:
                        continue
                    with self.subTest(manifest), tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                        file.write(embedded_config(DEPLOY / f"k8s/{manifest.name}", manifest.name))
                        file.flush()
                        [container] = document["spec"]["template"]["spec"]["containers"]
                        self.accept(container["args"], pathlib.Path(file.name))

    def test_every_flag_that_a_page_or_a_comment_names_exists(self):
        commands = [[BINARIES / f"baton-{role}"] for role in ROLES]
        commands += [[BINARIES / "baton", command] for command in ("up", "chat", "top", "bench", "needle", "probe")]
        known = {flag for command in commands for flag in re.findall(
            r"--[a-z][a-z0-9-]*", subprocess.run([*command, "--help"], capture_output=True, text=True).stdout)}
        known |= {"--for", "--timeout", "--now", "--cacert",  # of kubectl, systemctl and curl, then of docker
                  "--build-arg", "--health-cmd", "--read-only", "--stop-timeout", "--tmpfs"}
        pages = [page for page in DEPLOY.rglob("*") if page.suffix in (".md", ".yaml", ".yml", ".service", ".target")]
        for page in [*pages, DEPLOY / "docker/Dockerfile", DEPLOY / "docker/ready"]:
            text = "\n".join(line for line in page.read_text().splitlines()
                             if page.name != "Dockerfile" or line.startswith("#"))
            unknown = {flag.rstrip("-") for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)} - known
            self.assertEqual(unknown, set(), page)

    def test_an_unknown_key_is_refused_by_name(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("model-dir: /models\npage-token: 256\n")
            file.flush()
            checked = check_config("decode", pathlib.Path(file.name))
            self.assertNotEqual(checked.returncode, 0)
            self.assertIn("page-token", checked.stderr)
            self.assertIn("page-tokens", checked.stderr)

    def test_a_check_names_all_that_is_wrong_and_fails(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("model-dir: /nonexistent\npages: lots\n")
            file.flush()
            for role, flags, errors in (
                    ("prefill", ["--listen=127.0.0.1:9001"], ["pages", "cannot serve both", "/nonexistent/config.json"]),
                    ("decode", ["--tls-key-file=k"], ["pages", "give all three", "/nonexistent/config.json"]),
                    ("router", ["--decode-workers=a:1,a:1"], ["unknown key pages", "a:1", "/nonexistent/tokenizer.json",
                                                              "/nonexistent/config.json"])):
                with self.subTest(role):
                    checked = subprocess.run([BINARIES / f"baton-{role}", f"--config={file.name}", "--check-config",
                                              *flags], capture_output=True, text=True)
                    self.assertEqual((checked.returncode, checked.stdout), (1, ""))
                    head, *lines = checked.stderr.splitlines()
                    self.assertEqual(head, f"baton-{role}: {len(errors)} errors:")
                    for line, error in zip(lines, errors, strict=True):
                        self.assertIn(error, line)

    @unittest.skipUnless((TOOLS / "kubernetes-validate").exists(), "see tests/requirements.txt")
    def test_kubernetes_manifests_follow_the_schemas(self):
        names = [f"k8s/{name}" for name in (*ROLES, "namespace", "models", "fill-models")]
        manifests = [DEPLOY / f"{name}.yaml" for name in (*names, "k8s-ranks/prefill", "k8s-ranks/decode")]
        checked = subprocess.run([TOOLS / "kubernetes-validate", "--strict", *manifests],
                                 capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        said = checked.stdout + checked.stderr
        self.assertEqual(said.count(" passed for resource "), 17, said)

    def test_kubernetes_routers_look_up_the_services_of_the_workers(self):
        listed = embedded_config(DEPLOY / "k8s/router.yaml", "router.yaml")
        for role in ("prefill", "decode"):
            manifest = (DEPLOY / f"k8s/{role}.yaml").read_text()
            port = re.search(r"name: grpc, containerPort: (\d+)", manifest)[1]
            self.assertIn(f"dns:baton-{role}.baton.svc.cluster.local.:{port}", listed)
            self.assertRegex(manifest, rf"kind: Service\nmetadata:\n  name: baton-{role}\n")
            self.assertIn("clusterIP: None", manifest)
            self.assertIn("kind: Deployment", manifest)

    def test_ports_are_the_same_wherever_they_stand(self):
        for role in ROLES:
            shipped = (DEPLOY / f"configs/{role}.yaml").read_text()
            embedded = embedded_config(DEPLOY / f"k8s/{role}.yaml", f"{role}.yaml")
            ports = [re.findall(r"^[a-z_-]*listen: \"?0\.0\.0\.0:(\d+)", text, re.M)
                     for text in (shipped, embedded)]
            self.assertEqual(ports[0], ports[1], role)

    @unittest.skipUnless(yaml and (TOOLS / "kubernetes-validate").exists(), "see tests/requirements.txt")
    def test_kubernetes_mounts_the_certificates_that_flags_name(self):
        issued = {document["spec"]["secretName"]: document["spec"] for document in yaml.safe_load_all(
            (DEPLOY / "k8s-tls/certificates.yaml").read_text()) if document["kind"] == "Certificate"}
        for role in ROLES:
            documents = list(yaml.safe_load_all((DEPLOY / f"k8s/{role}.yaml").read_text()))
            deployment = next(d for d in documents if d["kind"] == "Deployment")
            patches = patches_of(DEPLOY / "k8s-tls", "Deployment", deployment["metadata"]["name"])
            self.assertEqual(len(patches), {"router": 1, "prefill": 2, "decode": 3}[role])
            for patch in patches:
                apply_json_patch(deployment, patch)
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                yaml.safe_dump(deployment, file)
                checked = subprocess.run([TOOLS / "kubernetes-validate", "--strict", file.name],
                                         capture_output=True, text=True)
                self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

            container = deployment["spec"]["template"]["spec"]["containers"][0]
            secrets = {volume["name"]: volume["secret"]["secretName"]
                       for volume in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in volume}
            folders = {mount["mountPath"]: secrets[mount["name"]]
                       for mount in container["volumeMounts"] if mount["name"] in secrets}
            flags = dict(re.match(r"--([a-z-]+)=(.*)", arg).groups() for arg in container["args"] if "tls-" in arg)
            for probe in ("startupProbe", "readinessProbe") if role != "router" else ():
                program, command, address, *shown = container[probe]["exec"]["command"]
                self.assertEqual((program, command), ("baton", "probe"))
                self.assertIn({"name": "grpc", "containerPort": int(address.removeprefix("127.0.0.1:"))},
                              container["ports"])
                self.assertEqual(dict(re.match(r"--([a-z-]+)=(.*)", flag).groups() for flag in shown), flags)
            self.assertEqual(flags.pop("tls-server-name"), issued["baton-cluster-tls"]["dnsNames"][0])
            self.assertEqual(len(flags), 5 if role == "router" else 3)
            asked = subprocess.run([BINARIES / f"baton-{role}", "--help"], capture_output=True, text=True)
            for flag, path in flags.items():
                self.assertIn(f"--{flag}", asked.stdout)
                self.assertIn(pathlib.Path(path).name, ("tls.crt", "tls.key", "ca.crt"))
                self.assertIn(folders[str(pathlib.Path(path).parent)], issued)

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kubernetes_takes_every_folder_with_and_without_certificates(self):
        for folder, devices in (("k8s", 0), ("k8s-gpu", 2), ("k8s-ranks", 2)):
            for component, with_certificates in (("", 0), ("components: [../k8s-tls]\n", 3 + 4)):  # and probes
                with self.subTest(folder + component), tempfile.TemporaryDirectory() as copy:
                    shutil.copytree(DEPLOY, copy, dirs_exist_ok=True)
                    with (pathlib.Path(copy) / folder / "kustomization.yaml").open("a") as file:
                        file.write(component)
                    rendered = subprocess.run(["kubectl", "kustomize", pathlib.Path(copy) / folder],
                                              capture_output=True, text=True)
                    self.assertEqual(rendered.returncode, 0, rendered.stderr)
                    counts = {"nvidia.com/gpu: 1": devices, "- --device=cuda": devices, "key: nvidia.com/gpu": devices,
                              "image: baton:cuda" if devices else "image: baton:latest": len(ROLES),
                              "tls-cert-file=/etc/baton-tls/": with_certificates,
                              "- 127.0.0.1:7001\n": 2 * bool(component), "- 127.0.0.1:7002\n": 2 * bool(component)}
                    self.assertEqual({text: rendered.stdout.count(text) for text in counts}, counts)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
    def test_units_are_understood_by_systemd(self):
        with tempfile.TemporaryDirectory() as folder:
            for role in ROLES:
                unit = (DEPLOY / f"systemd/baton-{role}.service").read_text()
                # The checker wants the program to exist.
                unit = unit.replace(f"/usr/bin/baton-{role}", str(BINARIES / f"baton-{role}"))
                (pathlib.Path(folder) / f"baton-{role}.service").write_text(unit)
            rank = (DEPLOY / "systemd/baton-decode@.service").read_text()
            rank = rank.replace("/usr/bin/baton-decode", str(BINARIES / "baton-decode"))
            for index in range(2):
                (pathlib.Path(folder) / f"baton-decode@{index}.service").write_text(rank)
            shutil.copy(DEPLOY / "systemd/baton-decode.target", folder)
            units = sorted(pathlib.Path(folder).iterdir())
            checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *units],
                                     capture_output=True, text=True)
            complaints = [line for line in checked.stderr.splitlines() if folder in line]
            self.assertEqual(complaints, [])

    @unittest.skipUnless(shutil.which("promtool"), "prometheus is not installed")
    def test_prometheus_accepts_its_configuration(self):
        checked = subprocess.run(["promtool", "check", "config", "prometheus.yml"],
                                 cwd=DEPLOY / "prometheus", capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


if __name__ == "__main__":
    unittest.main()
