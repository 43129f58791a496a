#!/usr/bin/env python3
"""A stand-in for the operators of DynamoGraphDeployment, KubeAI's Model and LeaderWorkerSet: pods by replicas, with the labels, owners and
statuses of the real ones, and no more. One poll loop; Python 3.11 or newer, standard library only; kinds that the server does not know are
left alone. An object whose pods' make changes gets new pods in the place of the old ones.

    KUBECONFIG=... operator.py
"""
import copy
import hashlib
import http.client
import json
import random
import signal
import string
import sys
import threading
import time

from kubelet import Api, ApiError, log

POLL_S = 0.3
MERGE = "application/merge-patch+json"
HASH = "test-operator/hash"


def env(**values):
    return [{"name": name, "value": value} for name, value in values.items()]


class Pods:
    """What one part of an object asks for."""

    def __init__(self, name, part, replicas, labels, template, number=False):
        self.name, self.part, self.replicas, self.labels, self.number = name, part, replicas, labels, number
        self.template = copy.deepcopy(template or {})
        self.hash = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def graph(obj, _):
    """Deployment-backed components of either version, as the operator of Dynamo makes them (discovery by etcd, as older graphs have it)."""
    name, namespace, spec = obj["metadata"]["name"], obj["metadata"]["namespace"], obj["spec"]
    if "services" in spec:
        parts = [(part, c, alpha(c)) for part, c in spec["services"].items()]
        common = spec.get("envs") or []
    else:
        parts = [(c["name"], c, copy.deepcopy(c["podTemplate"])) for c in spec["components"]]
        common = spec.get("env") or []
    for part, component, template in parts:
        kind = component.get("type") or component.get("componentType", "")
        main = next(c for c in template["spec"]["containers"] if c["name"] == "main")
        main["env"] = common + (main.get("env") or []) + env(
            DYN_NAMESPACE=f"{namespace}-{name}", DYN_COMPONENT=part, DYN_PARENT_DGD_K8S_NAME=name, DYN_SYSTEM_PORT="9090",
            ETCD_ENDPOINTS="etcd:2379", NATS_SERVER="nats://nats:4222")
        labels = {"nvidia.com/dynamo-graph-deployment-name": name, "nvidia.com/dynamo-component": part, "nvidia.com/dynamo-component-type": kind,
                  "nvidia.com/dynamo-namespace": f"{namespace}-{name}", "nvidia.com/selector": f"{name}-{part.lower()}"}
        yield Pods(f"{name}-{part.lower()}", part, component.get("replicas", 1), labels, template)


def alpha(component):
    extra = copy.deepcopy(component.get("extraPodSpec") or {})
    main = extra.pop("mainContainer", {})
    main |= {"name": "main", "env": (component.get("envs") or []) + (main.get("env") or [])}
    if "gpu" in ((component.get("resources") or {}).get("limits") or {}):
        main["resources"] = {"limits": {"nvidia.com/gpu": component["resources"]["limits"]["gpu"]}}
    return {"spec": {**extra, "containers": [main, *(extra.get("containers") or [])]}}


def graph_status(obj, found):
    key = "services" if "services" in obj["spec"] else "components"
    parts = {p.part: {"componentKind": "Deployment", "componentNames": [p.name], "replicas": total, "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": updated}
             for p, total, ready, updated in found}
    done = all(ready == p.replicas == updated for p, _, ready, updated in found)
    return {"state": "successful" if done else "pending", key: parts, "observedGeneration": obj["metadata"]["generation"],
            "conditions": [{"type": "Ready", "status": str(done), "reason": "all_resources_are_ready" if done else "pods_not_ready"}]}


def model(obj, _):
    """One container `server`, of KubeAI's own image for the engine; here the command stands in for that image's."""
    name, spec = obj["metadata"]["name"], obj["spec"]
    args = list(spec.get("args") or [])
    if not any(word.startswith("--port=") for word in args):
        args.append("--port=0")
    server = {"name": "server", "image": spec.get("image", "autotune:test"), "command": ["/autotune", "sim-engine", "chat-model"],
              "args": args,
              "env": [{"name": k, "value": v} for k, v in (spec.get("env") or {}).items()], "resources": {"limits": {"nvidia.com/gpu": "1"}},
              "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}}, "ports": [{"containerPort": 8000, "name": "http"}]}
    labels = {"app": "model", "model": name, "app.kubernetes.io/managed-by": "kubeai", "app.kubernetes.io/name": "vllm"}
    yield Pods(f"model-{name}", None, spec.get("replicas", 1), labels, {"spec": {"containers": [server], "terminationGracePeriodSeconds": 5}})


def model_status(_, found):
    [(_, total, ready, _)] = found
    return {"replicas": {"all": total, "ready": ready}}


def leader_worker_set(obj, _):
    """Groups of one pod: the leader."""
    name, templates = obj["metadata"]["name"], obj["spec"]["leaderWorkerTemplate"]
    template = templates.get("leaderTemplate") or templates["workerTemplate"]
    labels = {**(template.get("metadata", {}).get("labels") or {}), "leaderworkerset.sigs.k8s.io/name": name, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    yield Pods(name, None, obj["spec"].get("replicas", 1), labels, template, number=True)


def set_status(obj, found):
    [(_, total, ready, updated)] = found
    return {"replicas": total, "readyReplicas": ready, "updatedReplicas": updated, "observedGeneration": obj["metadata"]["generation"],
            "hpaPodSelector": f"leaderworkerset.sigs.k8s.io/name={obj['metadata']['name']},leaderworkerset.sigs.k8s.io/worker-index=0"}


KINDS = [  # kind, versions, plural, pods, status
    ("DynamoGraphDeployment", ["nvidia.com/v1beta1", "nvidia.com/v1alpha1"], "dynamographdeployments", graph, graph_status),
    ("Model", ["kubeai.org/v1"], "models", model, model_status),
    ("LeaderWorkerSet", ["leaderworkerset.x-k8s.io/v1"], "leaderworkersets", leader_worker_set, set_status),
]
ADAPTERS = "nvidia.com/v1alpha1", "dynamographdeploymentscalingadapters"


class Operator:
    def __init__(self):
        self.api = Api()
        self.stopping = threading.Event()

    def all(self, version, plural):
        try:
            return self.api.call("GET", f"/apis/{version}/{plural}")["items"]
        except ApiError as e:
            if e.code == 404:
                return []
            raise

    def at(self, obj, plural, more=""):
        meta = obj["metadata"]
        return f"/apis/{obj['apiVersion']}/namespaces/{meta['namespace']}/{plural}/{meta['name']}{more}"

    def adapt(self, obj):
        """A component with a scaling adapter has the scale that its adapter asks for; the adapter is made with the component's."""
        spec = obj["spec"]
        parts = spec.get("services") or {c["name"]: c for c in spec.get("components") or []}
        changed = False
        for part, component in parts.items():
            adapter = component.get("scalingAdapter")
            if adapter is None or adapter.get("enabled") is False:
                continue
            version, plural = ADAPTERS
            meta = obj["metadata"]
            name, path = f"{meta['name']}-{part.lower()}", f"/apis/{version}/namespaces/{meta['namespace']}/{plural}"
            try:
                there = self.api.call("GET", f"{path}/{name}")
            except ApiError as e:
                if e.code != 404:
                    raise
                there = self.api.call("POST", path, {
                    "apiVersion": version, "kind": "DynamoGraphDeploymentScalingAdapter",
                    "metadata": {"name": name, "ownerReferences": [owner(obj)]},
                    "spec": {"replicas": component.get("replicas", 1), "dgdRef": {"name": meta["name"], "serviceName": part}}})
                log(f"adapter {name}")
            wanted = there["spec"].get("replicas", 0)
            if component.get("replicas", 1) != wanted:
                component["replicas"], changed = wanted, True
            selector = f"nvidia.com/dynamo-graph-deployment-name={meta['name']},nvidia.com/dynamo-component={part}"
            status = {"replicas": wanted, "selector": selector}
            if there.get("status") != status:
                self.api.call("PATCH", f"{path}/{name}/status", {"status": status}, MERGE)
        if changed:
            log(f"{obj['metadata']['name']}: the scale of its adapter")
            obj = self.api.call("PUT", self.at(obj, KINDS[0][2]) + "?fieldManager=operator", obj)
        return obj

    def make(self, obj, wanted, name):
        meta = {"namespace": obj["metadata"]["namespace"], "name": name, "labels": wanted.labels, "ownerReferences": [owner(obj)],
                "annotations": {**(wanted.template.get("metadata", {}).get("annotations") or {}), HASH: wanted.hash}}
        self.api.call("POST", f"/api/v1/namespaces/{meta['namespace']}/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": wanted.template["spec"]})
        log(f"pod {name}")

    def reconcile(self, obj, plural, make, status, pods):
        if plural == KINDS[0][2]:
            obj = self.adapt(obj)
        found = []
        for wanted in make(obj, None):
            own = [p for p in pods if all(p["metadata"].get("labels", {}).get(k) == v for k, v in wanted.labels.items())]
            alive = [p for p in own if "deletionTimestamp" not in p["metadata"] and p.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
            current = [p for p in alive if p["metadata"]["annotations"].get(HASH) == wanted.hash]
            names = {p["metadata"]["name"] for p in own}
            for pod in [p for p in own if p not in alive and "deletionTimestamp" not in p["metadata"]] + [p for p in alive if p not in current] + current[wanted.replicas:]:
                self.delete(pod)
            for index in range(len(current), wanted.replicas):
                if wanted.number:
                    name = f"{wanted.name}-{index}"
                    if name in names:                    # the old one has to go first
                        continue
                else:
                    name = f"{wanted.name}-{wanted.hash}-{''.join(random.choices(string.ascii_lowercase, k=5))}"
                self.make(obj, wanted, name)
            ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in p.get("status", {}).get("conditions") or []) for p in alive)
            found.append((wanted, len(alive), ready, len(current)))
        new = status(obj, found)
        if any((obj.get("status") or {}).get(k) != v for k, v in new.items()):
            self.api.call("PATCH", self.at(obj, plural, "/status"), {"status": new}, MERGE)

    def delete(self, pod):
        meta = pod["metadata"]
        try:
            self.api.call("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")
            log(f"pod {meta['name']} deleted")
        except ApiError as e:
            if e.code != 404:
                raise

    def run(self):
        log("operator is ready")
        kinds = {kind for kind, *_ in KINDS}
        while not self.stopping.wait(POLL_S):
            try:
                pods = self.api.call("GET", "/api/v1/pods")["items"]
                of = {}
                for pod in pods:
                    for ref in pod["metadata"].get("ownerReferences") or []:
                        if ref["kind"] in kinds:
                            of.setdefault(ref["uid"], []).append(pod)
                for _, versions, plural, make, status in KINDS:
                    objects = next((found for v in versions if (found := self.all(v, plural))), [])
                    for obj in objects:
                        own = of.pop(obj["metadata"]["uid"], [])
                        if "deletionTimestamp" not in obj["metadata"]:
                            self.reconcile(obj, plural, make, status, own)
                for pod in sum(of.values(), []):         # their object is gone
                    if "deletionTimestamp" not in pod["metadata"]:
                        self.delete(pod)
            except (ApiError, OSError, http.client.HTTPException, KeyError, StopIteration) as e:
                log(f"again: {type(e).__name__}: {e}")
                time.sleep(0.5)


def owner(obj):
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], "controller": True, "blockOwnerDeletion": False}


if __name__ == "__main__":
    operator = Operator()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # not in the handler itself: the main thread may be in wait() just then, and hold the event's lock
        signal.signal(number, lambda *_: threading.Thread(target=operator.stopping.set).start())
    sys.exit(operator.run())
