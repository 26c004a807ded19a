#!/usr/bin/env python3
"""Validates the manifests of `ringleader run --print-scripts` against the schema of the Kubernetes API (kubernetes-validate, from PyPI).

    zoo/run/manifests.py FOLDER [--crd jobset.x-k8s.io_jobsets.yaml]

A JobSet is not a built-in type: the Job inside it is checked as a Job, and the whole against its CRD if that file (from
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
            if document["kind"] != "JobSet":
                kubernetes_validate.validate(document, version, strict=True)
                n += 1
                continue
            for job in document["spec"]["replicatedJobs"]:
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
