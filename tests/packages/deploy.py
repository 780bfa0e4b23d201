#!/usr/bin/env python3
"""The Helm chart: it lints, each rendering validates against the schemas of several versions of Kubernetes, Weir accepts the settings
in it, and values that make no sense are refused. The composition: the files it mounts are there, and Weir accepts its settings.

    python3 -m venv VENV && VENV/bin/pip install -r tests/packages/requirements.txt
    VENV/bin/python tests/packages/deploy.py --weir target/debug/weir

Helm itself runs (PyPI, helm-python-sdk); no cluster is asked. Exit code: 0 all as said, 1 not.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import helm_python
import kubernetes_validate
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy"
CHART, COMPOSITION = DEPLOY / "helm" / "weir", DEPLOY / "compose"
VERSIONS = ["1.28.0", "1.30.0", "1.32.0", "1.34.0", "1.37.0"]
# What may be asked of the chart, by what it is for.
VALUES = {
    "defaults": {},
    "no disk": {"persistence": {"enabled": False}, "config": {"storage": {"profile": "memory"}}},
    "monitored": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}, "metrics": {"port": 9191}},
    "with authentication": {"existingSecret": "weir-secrets", "config": {"auth": {"enabled": True}, "grpc": {"enabled": True}}},
    "several": {
        "replicas": 3, "podDisruptionBudget": {"maxUnavailable": "34%"}, "priorityClassName": "high", "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "llm", "operator": "Exists"}], "podLabels": {"team": "ai"}, "podAnnotations": {"note": "a: b"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    },
    "closed": {
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "ai"}}}], "scrapers": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}],
            "egressPorts": [443, 8443],
        },
        "seccompProfile": {"type": "Localhost", "localhostProfile": "weir.json"}, "serviceAccount": {"create": False, "name": "shared"},
        "env": [{"name": "SERVICE_LOG_LEVEL", "value": "warn"}], "imagePullSecrets": [{"name": "registry"}],
        "service": {"type": "LoadBalancer", "annotations": {"internal": "true"}}, "persistence": {"storageClass": "fast", "size": "1.5Ti"},
    },
    "bare": {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}, "fullnameOverride": "gateway"},
}
REFUSED = {
    "an unknown value": {"replica": 2},
    "a negative number of replicas": {"replicas": -1},
    "a volume that several pods write": {"persistence": {"accessMode": "ReadWriteMany"}},
    "no upstream": {"config": {"upstream_url": "ftp://example.org"}},
    "a port that is none": {"metrics": {"port": 70000}},
}


def texts(rendered):
    """The manifests, whatever form the library gives them in."""
    if isinstance(rendered, str):
        return [rendered]
    if isinstance(rendered, dict):
        return [text for part in rendered.values() for text in texts(part)]
    return [text for part in rendered or [] for text in texts(part)]


def objects(chart, values):
    rendered = chart.render(values, name="weir", namespace="llm")
    documents = []
    for text in texts(rendered):
        if "apiVersion:" in text:
            documents += [document for document in yaml.safe_load_all(text) if document]
    return documents


def accepted_by_weir(weir, settings, secret):
    """`weir check` of the settings, with the folder of the record in a place that is there."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "weir.yaml"
        file.write_text(settings.replace("/var/lib/weir", folder))
        answer = subprocess.run([weir, "check", "--config", file], capture_output=True, text=True, check=False,
                                env={"SERVICE_AUTH_ADMIN_KEY": "an-admin-key-of-the-test"} if secret else {})
        return answer.returncode == 0, answer.stderr + answer.stdout


def faults_of_composition(weir):
    services = yaml.safe_load((COMPOSITION / "compose.yaml").read_text())["services"]
    mounts = [mount.split(":")[0] for service in services.values() for mount in service.get("volumes", [])]
    faults = [f"compose mounts {mount}, which is not there" for mount in mounts if mount.startswith(".") and not (COMPOSITION / mount).exists()]
    fine, said = accepted_by_weir(weir, (COMPOSITION / "weir.yaml").read_text(), False)
    targets = yaml.safe_load((COMPOSITION / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    port = yaml.safe_load((COMPOSITION / "weir.yaml").read_text())["server"]["metrics_addr"].split(":")[1]
    if targets != [f"weir:{port}"]:
        faults.append(f"compose: Prometheus reads {targets}, metrics stand at port {port}")
    return faults + ([] if fine else [f"compose: weir check says {said}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    options = parser.parse_args()
    faults = []
    for name, values in VALUES.items():
        for message in helm_python.lint(str(CHART), values=values).get("messages") or []:
            faults.append(f"lint, {name}: {message}")
    chart = helm_python.Chart.load(str(CHART))
    checked = 0
    for name, values in VALUES.items():
        made = objects(chart, values)
        kinds = [one["kind"] for one in made]
        for kind in ("StatefulSet", "Service", "ConfigMap"):
            if kind not in kinds:
                faults.append(f"{name}: no {kind}")
        for one in made:
            if one["kind"] == "ServiceMonitor":
                continue  # Of the Prometheus operator, whose schema is not Kubernetes' own.
            for number in VERSIONS:
                try:
                    kubernetes_validate.validate(one, number, strict=True)
                    checked += 1
                except kubernetes_validate.ValidationError as error:
                    faults.append(f"{name}, {one['kind']}, {number}: {error}")
        settings = next(one for one in made if one["kind"] == "ConfigMap")["data"]["weir.yaml"]
        fine, said = accepted_by_weir(options.weir, settings, "existingSecret" in values)
        if not fine:
            faults.append(f"{name}: weir check says {said}")
    for name, values in REFUSED.items():
        try:
            objects(chart, values)
            faults.append(f"{name} is not refused")
        except helm_python.HelmError:
            pass
    faults += faults_of_composition(options.weir)
    for fault in faults:
        print(fault)
    print(f"chart: {len(VALUES)} sets of values, {checked} validations against Kubernetes {', '.join(VERSIONS)}, {len(REFUSED)} refusals, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
