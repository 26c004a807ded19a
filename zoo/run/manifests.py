#!/usr/bin/env python3
"""Validates the manifests of `ringleader run --print-scripts` against the schema of the Kubernetes API (kubernetes-validate, from PyPI).

    zoo/run/manifests.py FOLDER [--crd jobset.x-k8s.io_jobsets.yaml]

Also checked: each pod asks for GPUs, avoids the nodes of the others, mounts its policy and its checkpoints, and has a service
account with the rights to cordon a node and to delete pods. A JobSet is not a built-in type: the Job inside it is checked as a Job, and the whole against its CRD if that file (from
kubernetes-sigs/jobset, config/components/crd/bases) is given. Unknown fields are errors.
"""

import argparse
import os
import sys

import kubernetes_validate
import yaml


def closed(schema):
    """Forbids additional properties in every object with named properties."""
    if isinstance(schema, dict):
        if "properties" in schema and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for part in schema.values():
            closed(part)
    elif isinstance(schema, list):
        for part in schema:
            closed(part)
    return schema


def complete(name, documents, pod):
    """Everything that a pod of the job needs is there, and named alike."""
    spec, labels = pod["spec"], pod["metadata"]["labels"]
    container = spec["containers"][0]
    kinds = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    faults = []
    if "nvidia.com/gpu" not in container.get("resources", {}).get("limits", {}):
        faults.append("no GPUs")
    terms = spec.get("affinity", {}).get("podAntiAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    if not any(term["labelSelector"]["matchLabels"].items() <= labels.items() for term in terms):
        faults.append("two pods may share a node")
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    if set(mounts) != set(volumes):
        faults.append("volumes and mounts differ")
    policy = next((word.split("=", 1)[1] for word in container["args"] if word.startswith("--policy=")), "")
    folder, _, file = policy.rpartition("/")
    maps = [volumes[of]["configMap"]["name"] for of, path in mounts.items() if path == folder and "configMap" in volumes[of]]
    if not any(file in kinds.get(("ConfigMap", of), {}).get("data", {}) for of in maps):
        faults.append("the policy is not mounted")
    where = next(env["value"] for env in container["env"] if env["name"] == "CHECKPOINTS")
    claims = [path for of, path in mounts.items() if "persistentVolumeClaim" in volumes[of]]
    if not any(where == path or where.startswith(path + "/") for path in claims):
        faults.append("no volume for the checkpoints")
    account = spec.get("serviceAccountName")
    if ("ServiceAccount", account) not in kinds:
        faults.append("no service account")
    may = set()
    for document in documents:
        if not document["kind"].endswith("Binding") or account not in [of["name"] for of in document["subjects"]]:
            continue
        role = kinds[document["roleRef"]["kind"], document["roleRef"]["name"]]
        may |= {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}
    if not {("get", "nodes"), ("patch", "nodes"), ("list", "pods"), ("delete", "pods")} <= may:
        faults.append("the service account lacks rights")
    if faults:
        sys.exit(f"{name}: {', '.join(faults)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--crd")
    args = parser.parse_args()
    version = kubernetes_validate.latest_version()
    n = 0
    for name in ("job.yaml", "jobset.yaml"):
        with open(os.path.join(args.folder, name)) as file:
            documents = list(yaml.safe_load_all(file))
        for document in documents:
            if document["kind"] == "Job":
                complete(name, documents, document["spec"]["template"])
            if document["kind"] != "JobSet":
                kubernetes_validate.validate(document, version, strict=True)
                n += 1
                continue
            for job in document["spec"]["replicatedJobs"]:
                complete(name, documents, job["template"]["spec"]["template"])
                kubernetes_validate.validate(
                    {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]},
                    version, strict=True)
                labels = job["template"]["spec"]["template"]["metadata"].get("labels", {})
                # The Job's controller sets these itself, to the name from the JobSet's controller.
                if {"job-name", "batch.kubernetes.io/job-name"} & set(labels):
                    sys.exit(f"{name}: a label that belongs to the Job's controller")
                n += 1
            if args.crd:
                import jsonschema

                with open(args.crd) as file:
                    crd = yaml.safe_load(file)
                schema = next(v for v in crd["spec"]["versions"] if v["name"] == "v1alpha2")["schema"]["openAPIV3Schema"]
                schema = closed(schema)
                schema["properties"]["metadata"] = {"type": "object"}
                jsonschema.Draft7Validator(schema).validate(document)
                n += 1
    print(f"{n} documents, Kubernetes {version}: no fault")


if __name__ == "__main__":
    main()
