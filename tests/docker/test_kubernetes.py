# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker seconds=20
"""The manifests of docker/kubernetes: rendered by kustomize, judged by the API's schemas, and what they promise
of rights, limits and time. No engine is needed for these."""
import pathlib
import re
import shutil
import tempfile
import textwrap
import unittest

import engine

MANIFESTS = engine.ROOT / "docker/kubernetes"
OVERLAYS = ("sqlite", "postgres", "sidecar")
KUBERNETES = "1.29"  # the first with native sidecars on


def setUpModule():
    if not shutil.which("kubectl"):
        engine.skip("there is no kubectl to render the manifests with: apt-get install kubernetes-client")


def rendered(overlay, manifests=MANIFESTS / "overlays"):
    import yaml  # of the system's or of build/venv
    text = engine.run("kubectl", "kustomize", manifests / overlay).stdout
    return [one for one in yaml.safe_load_all(text) if one]


def pods(objects):
    for one in objects:
        if one["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


class Manifests(unittest.TestCase):
    def test_each_overlay_is_what_the_api_takes(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("there is no kubernetes-validate (build/venv)")
        for overlay in OVERLAYS:
            objects = rendered(overlay)
            for one in objects:
                with self.subTest(overlay=overlay, kind=one["kind"], name=one["metadata"]["name"]):
                    kubernetes_validate.validate(one, KUBERNETES, strict=True)

    def test_no_container_but_the_one_that_owns_folders_is_root_and_all_have_least_rights(self):
        for overlay in OVERLAYS:
            for name, pod in pods(rendered(overlay)):
                self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
                for one in [*pod.get("initContainers", []), *pod["containers"]]:
                    context = one["securityContext"]
                    self.assertTrue(context["readOnlyRootFilesystem"], one["name"])
                    self.assertFalse(context["allowPrivilegeEscalation"])
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    if one["name"] == "folders":
                        self.assertEqual(context["capabilities"]["add"], ["CHOWN"])
                    else:
                        user = context.get("runAsUser", pod["securityContext"].get("runAsUser"))
                        self.assertIn(user, (7420, 1000), one["name"])

    def test_the_uploader_s_limit_is_its_budget_and_room_for_itself_and_its_grace_longer_than_its_drain(self):
        units = {"MiB": 1, "GiB": 1024, "Mi": 1, "Gi": 1024}

        def mib(text):
            digits = text.rstrip("MiBGi")
            return int(digits) * units[text[len(digits):]]
        seen = 0
        for overlay in OVERLAYS:
            for _, pod in pods(rendered(overlay)):
                for one in [*pod.get("initContainers", []), *pod["containers"]]:
                    env = {item["name"]: item.get("value") for item in one.get("env", [])}
                    if "CAIRN_MEMORY_BUDGET" not in env:
                        continue
                    seen += 1
                    self.assertGreaterEqual(mib(one["resources"]["limits"]["memory"]), mib(env["CAIRN_MEMORY_BUDGET"]) + 150)
                    self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], 60 + 25)
        self.assertEqual(seen, len(OVERLAYS))

    def test_secrets_are_mounted_for_the_group_and_what_is_promised_of_servers_holds(self):
        for overlay, replicas in (("sqlite", 1), ("postgres", 2)):
            objects = rendered(overlay)
            server = next(one for one in objects if one["kind"] == "Deployment")
            self.assertEqual(server["spec"]["replicas"], replicas)
            volumes = {one["name"]: one for one in server["spec"]["template"]["spec"]["volumes"]}
            self.assertEqual(volumes["secrets"]["secret"]["defaultMode"], 0o440)
            self.assertEqual("persistentVolumeClaim" in volumes["state"], overlay == "sqlite")
            env = {item["name"] for item in server["spec"]["template"]["spec"]["containers"][0]["env"]}
            self.assertEqual("CAIRN_CATALOG" in env, overlay == "postgres")
            self.assertLessEqual({"CAIRN_TLS_CERT", "CAIRN_REQUIRE_TOKEN", "CAIRN_GRANT_KEY_FILE"}, env)
            kinds = {one["kind"] for one in objects}
            self.assertLessEqual({"PodDisruptionBudget", "NetworkPolicy", "DaemonSet", "Service", "ConfigMap"}, kinds)

    def test_monitors_choose_what_there_is_and_name_ports_that_it_has(self):
        objects = {one["kind"]: one for one in rendered("sqlite")}
        monitors = {one["kind"]: one["spec"] for one in rendered("prometheus", MANIFESTS)}
        service, pod = objects["Service"], objects["DaemonSet"]["spec"]["template"]
        for spec, labels, ports in (
                (monitors["ServiceMonitor"], service["metadata"]["labels"], service["spec"]["ports"]),
                (monitors["PodMonitor"], pod["metadata"]["labels"], pod["spec"]["containers"][0]["ports"])):
            self.assertLessEqual(spec["selector"]["matchLabels"].items(), labels.items())
            for endpoint in spec.get("endpoints", []) + spec.get("podMetricsEndpoints", []):
                self.assertIn(endpoint["port"], {port["name"] for port in ports})

    def test_the_overlay_of_docs_deploy_names_a_site_s_own_images_and_store(self):
        page = (engine.ROOT / "docs/deploy.md").read_text()
        with tempfile.TemporaryDirectory() as folder:
            manifests = pathlib.Path(folder) / "kubernetes"
            shutil.copytree(MANIFESTS, manifests)
            (manifests / "overlays/site").mkdir()
            for block in re.findall(r"```yaml\n(.*?)```", page, re.S):
                name = re.search(r"# (\S+\.yaml)", block).group(1)
                (manifests / "overlays/site" / name).write_text(textwrap.dedent(block))
            objects = rendered("site", manifests / "overlays")
        images = {one["image"] for _, pod in pods(objects) for one in [*pod.get("initContainers", []), *pod["containers"]]}
        self.assertEqual(images, {"registry.example/cairn-server:0.2.0", "registry.example/cairn-uploader:0.2.0"})
        settings = next(one for one in objects if one["kind"] == "ConfigMap")
        self.assertEqual(settings["data"]["CAIRN_STORE"], "s3://checkpoints/prod")
        self.assertEqual(settings["data"]["CAIRN_LOG_FORMAT"], "json")

    def test_variables_of_containers_are_settings_that_there_are(self):
        table = (engine.ROOT / "docs/config.md").read_text()
        for overlay in OVERLAYS:
            for _, pod in pods(rendered(overlay)):
                for one in [*pod.get("initContainers", []), *pod["containers"]]:
                    for item in one.get("env", []):
                        self.assertIn(f"`{item['name']}`", table, one["name"])


if __name__ == "__main__":
    engine.main()
