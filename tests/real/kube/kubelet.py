#!/usr/bin/env python3
"""A small test kubelet: the Pods bound to one Node of a real Kubernetes control plane run as plain processes.

No containers, no images, no isolation: a container is a process in a session of its own, and the paths of its mounts are
mapped to folders under --root by replacing them in the text of its command, args, env values and workingDir.
All share the machine's network. With --network a Pod with a `subdomain`, whose name others look for, has a network of its own, an address,
and the names of headless Services in its /etc/hosts (Linux namespaces and `ip`); it reaches Pods like itself and nothing else.
Python 3.11 or newer, standard library only; needs `kubectl` (once, to read the kubeconfig) and `openssl` (for the log server).

    KUBECONFIG=... kubelet.py --node NAME --gpus N --root DIR [--binary-map /autotune=FILE ...]

Folders:  ROOT/UID/volumes/NAME               emptyDir, configMap, secret (kinds it does not know: an empty folder)
          ROOT/claims/NAMESPACE-CLAIM         persistentVolumeClaim; outlives its Pods
          ROOT/hosts-NAMESPACE                what /etc/hosts is for Pods with a network of their own
          ROOT/UID/CONTAINER/log              stdout and stderr (log.prev: of the run before a restart)
          ROOT/UID/CONTAINER/termination      what stands behind the container's terminationMessagePath
"""
import argparse
import base64
import errno
import http.client
import http.server
import itertools
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

POLL_S = 0.3          # one GET of the node's Pods
TICK_S = 0.1          # how often a Pod's processes are looked at
GRACE_MAX_S = 20
HEARTBEAT_S = 20
API_LOST_S = 120      # without an answer for so long: stop everything (--api-lost)
MARK = "KUBELET_TEST_CONTAINER"
PATH = os.environ.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STRATEGIC = "application/strategic-merge-patch+json"


def log(text):
    print(f"{time.strftime('%H:%M:%S')} {text}\n", end="", flush=True)   # one write: threads must not mix their lines


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class ApiError(Exception):
    def __init__(self, code, text):
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """The API server by the kubeconfig's current context: client certificate or token; one kept connection for each thread."""

    def __init__(self):
        view = subprocess.run(["kubectl", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"], check=True, stdout=subprocess.PIPE).stdout
        config = json.loads(view)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.cluster = cluster
        server = urllib.parse.urlsplit(cluster["server"])
        self.host, self.port = server.hostname, server.port or 443
        self.context = ssl.create_default_context()
        if cluster.get("certificate-authority-data"):
            self.context.load_verify_locations(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if cluster.get("insecure-skip-tls-verify"):
            self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.token = user.get("token")
        if user.get("client-certificate-data"):
            with tempfile.NamedTemporaryFile() as f:     # mode 600; load_cert_chain reads files alone
                f.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
                f.flush()
                self.context.load_cert_chain(f.name)
        self.local = threading.local()

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = kind
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        for attempt in (1, 2):
            kept = getattr(self.local, "conn", None)
            conn = kept or http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=20)
            try:
                conn.request(method, path, data, headers)
                reply = conn.getresponse()
                text = reply.read()
                self.local.conn = conn
                break
            except (OSError, http.client.HTTPException):
                conn.close()
                self.local.conn = None
                if attempt == 2 or not kept:             # a kept connection may have been closed by the server
                    raise
        if reply.status >= 300:
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                message = text[:300].decode(errors="replace")
            raise ApiError(reply.status, message)
        return json.loads(text)


# --- processes

def members(session=None, mark=None, root=None):
    """Live processes of this session, or with this container's mark in their environment (they left the session), or of any container under this root."""
    found = []
    mark, root = (f"{MARK}={mark}".encode() if mark else None), (f"{MARK}={root}:".encode() if root else None)
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                fields = f.read().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            if session is not None and int(fields[3]) == session:
                found.append(int(name))
            elif mark or root:
                with open(f"/proc/{name}/environ", "rb") as f:
                    if any(v == mark or (root and v.startswith(root)) for v in f.read().split(b"\0")):
                        found.append(int(name))
        except (OSError, IndexError, ValueError):
            continue                                     # ended meanwhile, or someone else's
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def into(pid):
    """How a command begins that runs in the network of a process."""
    return ["nsenter", f"--target={pid}", "--user", "--preserve-credentials", "--net"]


def expand(text, env):
    """$(VAR) as Kubernetes expands it: $$ is a $, unknown names stay as they are."""
    return re.sub(r"\$\$|\$\(([^()]*)\)", lambda m: "$" if m.group(0) == "$$" else env.get(m.group(1), m.group(0)), text)


def mapper(paths):
    """A function that replaces whole paths (and what lies under them) in a text, the longest first and each place once."""
    paths = {k.rstrip("/"): v for k, v in paths.items() if k.rstrip("/")}
    if not paths:
        return lambda text: text
    names = "|".join(re.escape(p) for p in sorted(paths, key=len, reverse=True))
    # not in the middle of another path (/mnt/data, ${X}/data, /data2, /data.old), nor a URL's host (http://data)
    pattern = re.compile(rf"(?<![\w.~*)}}-])(?<!:/)(?:{names})(?![\w.-])")
    return lambda text: pattern.sub(lambda m: paths[m.group(0)], text)


class Container:
    """One container of a Pod: a process, started as often as the restart policy says."""

    def __init__(self, pod, spec, kind):
        self.pod, self.spec, self.kind, self.name = pod, spec, kind, spec["name"]
        self.folder = os.path.join(pod.folder, self.name)
        self.mark = f"{pod.kubelet.root}:{pod.uid}/{self.name}"
        self.proc = None
        self.restarts = 0
        self.running = self.terminated = self.last = None   # state objects as in the API
        self.again_at = self.unpulled = None                # unpulled: the state of a container whose image cannot be had

    @property
    def sidecar(self):
        return self.kind == "init" and self.spec.get("restartPolicy") == "Always"

    def prepare(self):
        """argv, env, cwd after mapping."""
        pod = self.pod
        field = {"metadata.name": pod.name, "metadata.namespace": pod.namespace, "metadata.uid": pod.uid, "spec.nodeName": pod.kubelet.node,
                 "status.podIP": pod.address, "status.hostIP": "127.0.0.1", "spec.serviceAccountName": pod.spec.get("serviceAccountName", "")}
        for kind in ("labels", "annotations"):
            field.update({f"metadata.{kind}['{key}']": value for key, value in (pod.obj["metadata"].get(kind) or {}).items()})
        raw = []
        for item in self.spec.get("env") or []:
            ref = ((item.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
            if ref in field:
                raw.append((item["name"], field[ref]))
            elif "valueFrom" not in item:
                raw.append((item["name"], item.get("value", "")))
        plain = {}
        for name, value in raw:
            plain[name] = expand(value, plain)
        paths = {}
        for mount in self.spec.get("volumeMounts") or []:
            target = pod.volumes.get(mount["name"])
            if target is None:
                continue
            sub = mount.get("subPath") or expand(mount.get("subPathExpr", ""), plain)
            if sub:
                target = os.path.join(target, sub)
                if not os.path.exists(target):
                    os.makedirs(target)
            paths[mount["mountPath"]] = target
        paths.setdefault(self.spec.get("terminationMessagePath") or "/dev/termination-log", os.path.join(self.folder, "termination"))
        mapped = mapper(paths)
        env = {"PATH": PATH}
        own = {}
        for name, value in raw:
            own[name] = expand(mapped(value), own)
        if pod.spec.get("serviceAccountName", "default") != "default":
            env["KUBECONFIG"] = pod.kubeconfig()
        env.update(own)
        env[MARK] = self.mark
        command = self.spec.get("command")
        if not command:
            argv = ["sleep", "infinity"]
        else:
            argv = [expand(mapped(a), own) for a in command + (self.spec.get("args") or [])]
            first = expand(command[0], own)
            argv[0] = pod.kubelet.binaries.get(first, argv[0])
        cwd = mapped(self.spec.get("workingDir") or "")
        return argv, env, cwd if cwd and os.path.isdir(cwd) else pod.folder

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        open(os.path.join(self.folder, "termination"), "wb").close()
        path = os.path.join(self.folder, "log")
        if os.path.exists(path):
            os.replace(path, path + ".prev")
        self.again_at = None
        self.terminated = None
        started = now()
        with open(path, "ab") as out:
            try:
                argv, env, cwd = self.prepare()
                argv = self.pod.enter(cwd) + argv
                for attempt in range(5):
                    try:
                        self.proc = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
                        break
                    except OSError as e:
                        if e.errno != errno.ETXTBSY or attempt == 4:   # another thread's child may still hold the file that was just written
                            raise
                        time.sleep(0.05)
            except (OSError, ValueError, ApiError) as e:
                self.proc = None
                out.write(f"kubelet: could not start: {e}\n".encode())
                self.running = None
                self.terminated = {"exitCode": 128, "reason": "StartError", "message": str(e), "startedAt": started, "finishedAt": now(), "containerID": self.id}
                log(f"{self.pod.label} {self.name}: could not start: {e}")
                return
        self.running = {"startedAt": started}
        log(f"{self.pod.label} {self.name}: pid {self.proc.pid}: {' '.join(argv)[:900]!r}")

    @property
    def id(self):
        return f"process://{self.pod.uid}/{self.name}/{self.restarts}"

    def poll(self):
        """True while it runs; notes how it ended."""
        if self.proc is None:
            return False
        code = self.proc.poll()
        if code is None:
            return True
        send(members(self.proc.pid, self.mark), signal.SIGKILL)   # as with a container: nothing outlives its first process
        code = code if code >= 0 else 128 - code
        message = b""
        try:
            with open(os.path.join(self.folder, "termination"), "rb") as f:
                message = f.read(4096)
            if not message and code and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
                with open(os.path.join(self.folder, "log"), "rb") as f:
                    message = b"".join(f.read()[-2048:].splitlines(True)[-80:])
        except OSError:
            pass
        self.terminated = {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": self.running["startedAt"], "finishedAt": now(), "containerID": self.id}
        if message:
            self.terminated["message"] = message.decode(errors="replace")
        self.running = self.proc = None
        log(f"{self.pod.label} {self.name}: ended with {code}")
        return False

    def restart_later(self):
        if self.again_at is None:
            self.again_at = time.monotonic() + 1
        elif time.monotonic() >= self.again_at:
            self.last, self.restarts = self.terminated, self.restarts + 1
            self.start()

    def signal(self, number):
        if self.proc is not None:
            send(members(self.proc.pid, self.mark if number == signal.SIGKILL else None), number)

    def status(self, waiting):
        if self.running:
            state = {"running": self.running}
        elif self.terminated and self.again_at is not None:
            state = {"waiting": {"reason": "CrashLoopBackOff", "message": "restarts in 1 s"}}
        elif self.terminated:
            state = {"terminated": self.terminated}
        else:
            state = {"waiting": self.unpulled or {"reason": waiting}}
        last = self.terminated if self.again_at is not None else self.last
        ready = bool(self.running) if self.kind == "main" or self.sidecar else bool(self.terminated and self.terminated["exitCode"] == 0)
        return {"name": self.name, "image": self.spec.get("image", ""), "imageID": "", "containerID": self.id if self.running or self.terminated else "",
                "ready": ready, "started": bool(self.running), "restartCount": self.restarts, "state": state, "lastState": {"terminated": last} if last else {}}


class Pod(threading.Thread):
    """What one Pod needs, from its volumes to the removal of its object."""

    def __init__(self, kubelet, obj):
        super().__init__(daemon=True)
        self.kubelet, self.api, self.obj, self.spec = kubelet, kubelet.api, obj, obj["spec"]
        meta = obj["metadata"]
        self.name, self.namespace, self.uid = meta["name"], meta["namespace"], meta["uid"]
        self.label = f"{self.namespace}/{self.name}"
        self.path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.folder = os.path.join(kubelet.root, self.uid)
        self.volumes = {}
        self.gone = False                  # its object is not there any more
        self.wake = threading.Event()
        self.policy = self.spec.get("restartPolicy", "Always")
        self.inits = [Container(self, c, "init") for c in self.spec.get("initContainers") or []]
        self.mains = [Container(self, c, "main") for c in self.spec["containers"]]
        self.phase, self.waiting, self.message = "Pending", "PodInitializing" if self.inits else "ContainerCreating", None
        self.since = obj.get("status", {}).get("startTime") or now()
        self.conditions, self.sent, self.retry_at = {}, None, 0.0
        self.address, self.sandbox = "127.0.0.1", None   # sandbox: the process that holds its network

    def containers(self):
        return self.inits + self.mains

    def terminating(self):
        return self.gone or self.kubelet.stopping.is_set() or "deletionTimestamp" in self.obj["metadata"]

    def pause(self, seconds=TICK_S):
        self.wake.wait(seconds)
        self.wake.clear()

    # --- network

    def open_network(self):
        """Gives it a network of its own where it needs one, with a cable to the bridge of all nodes."""
        if self.kubelet.bridge is None or not self.spec.get("subdomain"):
            return
        self.address = self.kubelet.next_address()
        hosts, bridge = self.kubelet.hosts(self.namespace), self.kubelet.bridge
        inside = 'ip link set lo up && mount --bind "$0" /etc/hosts && echo ready && exec sleep infinity'
        self.sandbox = subprocess.Popen([*into(bridge), "unshare", "--net", "--mount", "sh", "-ec", inside, hosts], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        start_new_session=True, env={"PATH": PATH, MARK: f"{self.kubelet.root}:{self.uid}/"})
        if self.sandbox.stdout.readline() != b"ready\n":
            raise OSError("no network of its own")
        end = "pod-" + "-".join(self.address.split(".")[1:])
        cable = f"ip link add {end} type veth peer name eth0 netns {self.sandbox.pid} && ip link set {end} master pods up"
        subprocess.run([*into(bridge), "sh", "-ec", cable], check=True)
        subprocess.run([*into(self.sandbox.pid), "sh", "-ec", f"ip address add {self.address}/16 dev eth0 && ip link set eth0 up"], check=True)

    def close_network(self):
        if self.sandbox is not None:
            self.sandbox.kill()
            self.sandbox.wait()
            self.sandbox.stdout.close()

    def enter(self, folder):
        """How a command begins that runs in its network."""
        return [] if self.sandbox is None else [*into(self.sandbox.pid), "--mount", f"--wd={folder}", "--"]

    # --- volumes

    def write_keys(self, source, folder, kind, name, encoded):
        while True:
            try:
                found = self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/{kind}/{name}")
                break
            except ApiError as e:
                if e.code == 404 and source.get("optional"):
                    return True
                self.message = f"{kind} {name}: {e}"
            except (OSError, http.client.HTTPException) as e:
                self.message = f"{kind} {name}: {e}"
            self.sync()
            if self.terminating():
                return False
            self.pause(1)
        self.message = None
        data = {k: base64.b64decode(v) if encoded else v.encode() for k, v in (found.get("data") or {}).items()}
        data.update({k: base64.b64decode(v) for k, v in (found.get("binaryData") or {}).items()})
        mode = source.get("defaultMode", 0o644)
        items = source.get("items") or [{"key": k, "path": k} for k in data]
        for item in items:
            if item["key"] not in data:
                continue
            path = os.path.join(folder, item["path"])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data[item["key"]])
            os.chmod(path, item.get("mode", mode))
        return True

    def make_volumes(self):
        for volume in self.spec.get("volumes") or []:
            name = volume["name"]
            claim = volume.get("persistentVolumeClaim")
            if claim:
                folder = os.path.join(self.kubelet.root, "claims", f"{self.namespace}-{claim['claimName']}")
            else:
                folder = os.path.join(self.folder, "volumes", name)
            os.makedirs(folder, exist_ok=True)
            self.volumes[name] = self.kubelet.short(folder)
            if "configMap" in volume:
                source = volume["configMap"]
                done = self.write_keys(source, folder, "configmaps", source["name"], False)
            elif "secret" in volume:
                source = volume["secret"]
                done = self.write_keys(source, folder, "secrets", source["secretName"], True)
            else:
                done = True
            if not done:
                return False
        return True

    def kubeconfig(self):
        """A file that stands in for the token of the Pod's service account, which programs look for at a path that is not ours to map."""
        account = self.spec["serviceAccountName"]
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self.api.call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", request)["status"]["token"]
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "pod",
                  "clusters": [{"name": "pod", "cluster": self.api.cluster}], "users": [{"name": "pod", "user": {"token": token}}],
                  "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": self.namespace}}]}
        path = os.path.join(self.folder, "kubeconfig")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            json.dump(config, f)
        return path

    # --- status

    def condition(self, kind, true, reason=None):
        old = self.conditions.get(kind)
        status = "True" if true else "False"
        if old is None or old["status"] != status or old.get("reason") != reason:
            old = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": old["lastTransitionTime"] if old and old["status"] == status else now()}
            self.conditions[kind] = old
        return old

    def status(self):
        over = self.phase in ("Succeeded", "Failed")
        reason = ("PodCompleted" if self.phase == "Succeeded" else "PodFailed") if over else "ContainersNotReady"
        ready = not over and all(c.running for c in self.mains) and not self.terminating()
        initialized = self.phase != "Pending" and all(c.sidecar or (c.terminated and c.terminated["exitCode"] == 0) for c in self.inits) or not self.inits
        status = {"phase": self.phase, "hostIP": "127.0.0.1", "hostIPs": [{"ip": "127.0.0.1"}], "podIP": self.address, "podIPs": [{"ip": self.address}], "startTime": self.since,
                  "message": self.message,
                  "conditions": [dict(self.condition("Initialized", initialized, None if initialized else "ContainersNotInitialized")),
                                 dict(self.condition("ContainersReady", ready, None if ready else reason)),
                                 dict(self.condition("Ready", ready, None if ready else reason))],
                  "containerStatuses": [c.status(self.waiting) for c in self.mains]}
        if self.inits:
            status["initContainerStatuses"] = [c.status(self.waiting) for c in self.inits]
        return status

    def sync(self):
        if self.gone or self.kubelet.stopping.is_set():
            return True
        status = self.status()
        if status == self.sent:
            return True
        if time.monotonic() < self.retry_at:
            return False
        try:
            self.api.call("PATCH", f"{self.path}/status", {"metadata": {"uid": self.uid}, "status": status}, STRATEGIC)
        except ApiError as e:
            if e.code in (404, 409):
                return True                              # it has gone, or another one has its name
            log(f"{self.label}: status refused: {e}")
            self.retry_at = time.monotonic() + 1
            return False
        except (OSError, http.client.HTTPException) as e:
            log(f"{self.label}: status not sent: {e}")
            self.retry_at = time.monotonic() + 1
            return False
        if self.sent is None or self.sent["phase"] != status["phase"]:
            log(f"{self.label}: {status['phase']}")
        self.sent = status
        return True

    # --- its life

    def run(self):
        try:
            self.live()
        except Exception as e:                           # a fault in here must not leave processes behind
            log(f"{self.label}: internal error: {type(e).__name__}: {e}")
            self.phase, self.message = "Failed", f"test kubelet: {type(e).__name__}: {e}"
            self.stop(0)
        self.close_network()
        while not self.sync() and not self.terminating():
            self.pause()
        while not self.terminating():                    # over; its object stays until someone deletes it
            self.pause(5)
        if not self.gone and not self.kubelet.stopping.is_set():
            self.remove()

    def live(self):
        old = self.obj.get("status", {})
        if old.get("phase") in ("Succeeded", "Failed"):
            self.phase, self.sent = old["phase"], None
            self.sync = lambda: True                     # ended under an earlier kubelet: leave its status alone
            return
        os.makedirs(self.folder, exist_ok=True)
        if old.get("phase") == "Running":                # its processes went with an earlier kubelet
            if self.policy == "Never":
                for c in self.mains:
                    c.terminated = {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "the kubelet was restarted", "startedAt": self.since, "finishedAt": now()}
                for c in self.inits:
                    c.terminated = {"exitCode": 0, "reason": "Completed", "startedAt": self.since, "finishedAt": self.since}
                self.phase = "Failed"
                return
            counts = {s["name"]: s.get("restartCount", 0) + 1 for s in old.get("containerStatuses") or []}
            for c in self.mains:
                c.restarts = counts.get(c.name, 0)
        self.open_network()
        if self.make_volumes() and self.run_inits() and all(self.pull(c) for c in self.mains):
            for c in self.mains:
                c.start()
            self.phase = "Running"
            self.sync()                                  # said even if all have ended by now
            while not self.terminating():
                if self.tend():
                    break
                self.sync()
                self.pause()
        self.stop()

    def pull(self, c):
        """Waits for ever where the image is one of --no-image, as a kubelet does between its attempts; False once the Pod shall end."""
        image = c.spec.get("image", "")
        why = self.kubelet.no_images.get(image)
        if why is None:
            return True
        said = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": not found'
        tries = [{"reason": "ErrImagePull", "message": said}, {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": ErrImagePull: {said}'}]
        if why:
            tries = [{"reason": why, "message": f'Failed to apply default image tag "{image}"' if why == "InvalidImageName" else said}]
        begun = time.monotonic()
        while not self.terminating():
            c.unpulled = tries[int((time.monotonic() - begun) / 2) % len(tries)]
            self.sync()
            self.pause()
        return False

    def run_inits(self):
        for c in self.inits:
            if not self.pull(c):
                return False
            c.start()
            if c.sidecar:
                continue
            while True:
                self.sync()
                if self.terminating():
                    return False
                if c.poll():
                    pass
                elif c.terminated["exitCode"] == 0:
                    break
                elif self.policy == "Never":
                    self.phase = "Failed"
                    return False
                else:
                    c.restart_later()
                self.tend_sidecars()
                self.pause(0.05)
        return True

    def tend_sidecars(self):
        for c in self.inits:
            if c.sidecar and (c.running or c.terminated) and not c.poll():
                c.restart_later()

    def tend(self):
        """Looks after the containers; True when all have ended for good."""
        over = True
        for c in self.mains:
            if c.poll():
                over = False
            elif self.policy == "Always" or (self.policy == "OnFailure" and c.terminated["exitCode"]):
                c.restart_later()
                over = False
        if not over:
            self.tend_sidecars()
        return over

    def grace(self):
        meta = self.obj["metadata"]
        seconds = meta.get("deletionGracePeriodSeconds") if "deletionTimestamp" in meta else None
        if seconds is None:
            seconds = self.spec.get("terminationGracePeriodSeconds", 30)
        return min(seconds, 3 if self.kubelet.stopping.is_set() else GRACE_MAX_S)

    def stop(self, grace=None):
        """Ends what still runs, then says how it ended."""
        begun = time.monotonic()
        alive = [c for c in self.containers() if c.poll()]
        if alive:
            log(f"{self.label}: SIGTERM to {', '.join(c.name for c in alive)}")
        for c in alive:
            c.signal(signal.SIGTERM)
        killed = False
        while alive:
            if not killed and time.monotonic() - begun >= (self.grace() if grace is None else grace):
                log(f"{self.label}: SIGKILL to {', '.join(c.name for c in alive)}")
                killed = True
            if killed:
                for c in alive:
                    c.signal(signal.SIGKILL)
            self.pause(0.05)
            alive = [c for c in alive if c.poll()]
        for c in self.containers():
            c.again_at = None
        if self.phase == "Failed":
            return
        if all(c.terminated for c in self.mains):
            self.phase = "Failed" if any(c.terminated["exitCode"] for c in self.mains) else "Succeeded"
        elif self.terminating():
            self.phase = "Failed"                        # deleted before its containers started

    def remove(self):
        for _ in range(20):
            if self.sync():
                break
            self.pause(0.5)
        while not self.gone and not self.kubelet.stopping.is_set():
            try:
                self.api.call("DELETE", self.path, {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
                log(f"{self.label}: object deleted")
                return
            except ApiError as e:
                if e.code in (404, 409):
                    return
                log(f"{self.label}: delete refused: {e}")
            except (OSError, http.client.HTTPException) as e:
                log(f"{self.label}: delete not sent: {e}")
            self.pause(1)


class Logs(http.server.BaseHTTPRequestHandler):
    """GET /containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N: what `kubectl logs` asks for, through the API server."""
    kubelet = None

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(p) for p in url.path.split("/")[1:]]
        query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query).items()}
        if len(parts) != 4 or parts[0] != "containerLogs":
            return self.answer(404, b"only /containerLogs is served here\n")
        _, namespace, name, container = parts
        pod = next((p for p in list(self.kubelet.pods.values()) if (p.namespace, p.name) == (namespace, name)), None)
        if pod is None or container not in [c.name for c in pod.containers()]:
            return self.answer(404, b"no such container on this node\n")
        try:
            with open(os.path.join(pod.folder, container, "log.prev" if query.get("previous") == "true" else "log"), "rb") as f:
                text = f.read()
        except FileNotFoundError:
            return self.answer(400, b"the container has not run\n")
        if query.get("tailLines", "").isdigit():
            lines = text.splitlines(True)
            text = b"".join(lines[max(0, len(lines) - int(query["tailLines"])):])
        if query.get("limitBytes", "").isdigit():
            text = text[:int(query["limitBytes"])]
        return self.answer(200, text)

    def answer(self, code, text):
        self.send_response(code)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class LogServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):     # a client that hung up is no news
        pass


class Kubelet:
    def __init__(self, args):
        self.node, self.gpus = args.node, args.gpus
        self.root = os.path.realpath(args.root)
        os.makedirs(self.root, exist_ok=True)
        self.binaries = dict(args.binary_map)
        self.api_lost, self.no_images = args.api_lost, dict(args.no_image)
        self.api = Api()
        self.pods = {}
        self.stopping = threading.Event()
        self.port = 0
        self.bridge, _, self.subnet = (args.network or "").partition(",")
        self.bridge, self.numbers, self.names = self.bridge or None, itertools.count(1), {}

    def next_address(self):
        return f"{self.subnet}.{next(self.numbers) % 250 + 1}"

    def hosts(self, namespace):
        """The file with the names that Pods of this namespace know."""
        path = os.path.join(self.root, f"hosts-{namespace}")
        if namespace not in self.names:
            with open(path, "w") as f:
                f.write("127.0.0.1 localhost\n")
            self.names[namespace] = ""
        return path

    def tell_names(self):
        """Writes the names of headless Services' Pods as the DNS of a cluster has them, from what the controllers say of those that are ready."""
        for namespace, said in list(self.names.items()):
            names = ["127.0.0.1 localhost"]
            for part in self.api.call("GET", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?resourceVersion=0")["items"]:
                service = part["metadata"].get("labels", {}).get("kubernetes.io/service-name")
                for end in part.get("endpoints") or []:
                    if end.get("hostname") and end["conditions"].get("ready"):
                        name = f"{end['hostname']}.{service}"
                        names += [f"{address} {name} {name}.{namespace}.svc.cluster.local" for address in end["addresses"]]
            text = "\n".join(names) + "\n"
            if text != said:
                with open(self.hosts(namespace), "r+") as f:   # the same file, which is mounted in the Pods
                    f.write(text)
                    f.truncate()
                self.names[namespace] = text

    def short(self, folder):
        """A short name of a folder: the name of a Unix socket in it has at most 107 characters, which engines expect to be enough."""
        for number in itertools.count():
            link = os.path.join(self.root, f"v{number}")
            try:
                os.symlink(folder, link)
                return link
            except FileExistsError:
                continue

    def serve_logs(self):
        try:
            with tempfile.TemporaryDirectory() as d:
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{d}/key", "-out", f"{d}/crt",
                                "-days", "30", "-subj", f"/CN={self.node}"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(f"{d}/crt", f"{d}/key")
        except (OSError, subprocess.CalledProcessError) as e:
            log(f"no log server (kubectl logs will not work): {e}")
            return
        Logs.kubelet = self
        server = LogServer(("127.0.0.1", 0), Logs)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def node_status(self):
        room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(self.gpus)}
        status = {"capacity": room, "allocatable": room, "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": self.node}],
                  "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "test kubelet", "lastHeartbeatTime": now(), "lastTransitionTime": self.started}],
                  "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "test-kubelet", "bootID": "", "containerRuntimeVersion": "process://1", "kernelVersion": "",
                               "kubeProxyVersion": "", "machineID": "", "osImage": "", "systemUUID": ""}}
        if self.port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}
        return status

    def register(self):
        self.started = now()
        labels = {"kubernetes.io/hostname": self.node, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        try:
            self.api.call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node, "labels": labels}, "status": self.node_status()})
        except ApiError as e:
            if e.code != 409:
                raise
        self.heartbeat()

    def heartbeat(self):
        self.api.call("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": self.node_status()}, STRATEGIC)

    # --- claims: the scheduler places a Pod only when its claims are bound, and there is no provisioner here

    def provision_claims(self):
        label = "test-kubelet/node"
        for claim in self.api.call("GET", "/api/v1/persistentvolumeclaims?resourceVersion=0")["items"]:
            meta, spec = claim["metadata"], claim["spec"]
            if claim.get("status", {}).get("phase") != "Pending" or spec.get("volumeName") or "deletionTimestamp" in meta:
                continue
            name = f"pv-{meta['uid']}"
            folder = os.path.join(self.root, "claims", f"{meta['namespace']}-{meta['name']}")
            try:
                self.api.call("POST", "/api/v1/persistentvolumes", {
                    "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": {label: self.node}},
                    "spec": {"capacity": {"storage": spec["resources"]["requests"]["storage"]}, "accessModes": spec["accessModes"], "storageClassName": spec.get("storageClassName") or "",
                             "volumeMode": spec.get("volumeMode", "Filesystem"), "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": folder},
                             "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}}})
                log(f"claim {meta['namespace']}/{meta['name']}: {folder}")
            except ApiError as e:
                if e.code != 409:
                    raise
        for volume in self.api.call("GET", f"/api/v1/persistentvolumes?resourceVersion=0&labelSelector={urllib.parse.quote(f'{label}={self.node}')}")["items"]:
            if volume.get("status", {}).get("phase") == "Released" and "deletionTimestamp" not in volume["metadata"]:
                folder = volume["spec"]["hostPath"]["path"]
                if os.path.isdir(folder):                # the claim was deleted: a new one of that name must start empty
                    os.replace(folder, f"{folder}.released-{volume['metadata']['uid'][:8]}")
                self.api.call("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")
                log(f"volume of {folder}: released")

    # --- the loop

    def run(self):
        send(members(root=self.root), signal.SIGKILL)    # left by a kubelet that was killed
        self.serve_logs()
        self.register()
        log(f"node {self.node} is ready: {self.gpus} GPUs, kubelet API on port {self.port}, root {self.root}")
        query = f"/api/v1/pods?resourceVersion=0&fieldSelector={urllib.parse.quote(f'spec.nodeName={self.node}')}"
        beat = claims = answered = time.monotonic()
        code = 0
        while not self.stopping.wait(POLL_S):
            try:
                found = self.api.call("GET", query)["items"]
                answered = time.monotonic()
                self.update({p["metadata"]["uid"]: p for p in found})
                self.tell_names()
                if answered - beat >= HEARTBEAT_S:
                    beat = answered
                    self.heartbeat()
                if answered - claims >= 1:
                    claims = answered
                    self.provision_claims()
            except (ApiError, OSError, http.client.HTTPException, ValueError) as e:
                log(f"API: {e}")
                if time.monotonic() - answered > self.api_lost:
                    log(f"no answer from the API for {self.api_lost} s")
                    code = 1
                    break
                self.stopping.wait(1)
        self.shutdown()
        return code

    def update(self, found):
        for uid, obj in found.items():
            pod = self.pods.get(uid)
            if pod is None:
                self.pods[uid] = pod = Pod(self, obj)
                log(f"{pod.label}: bound to this node")
                pod.start()
            elif pod.obj["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
                pod.obj = obj
                if "deletionTimestamp" in obj["metadata"]:
                    pod.wake.set()
        for uid, pod in list(self.pods.items()):
            if uid not in found:
                if not pod.gone:
                    pod.gone = True
                    pod.wake.set()
                if not pod.is_alive():
                    del self.pods[uid]
                    log(f"{pod.label}: gone")

    def shutdown(self):
        self.stopping.set()
        log("stopping")
        for pod in self.pods.values():
            pod.wake.set()
        until = time.monotonic() + 6
        for pod in self.pods.values():
            pod.join(max(0.0, until - time.monotonic()))
        send(members(root=self.root), signal.SIGKILL)
        try:
            self.api.call("DELETE", f"/api/v1/nodes/{self.node}")
            log(f"node {self.node} deleted")
        except (ApiError, OSError, http.client.HTTPException) as e:
            log(f"node {self.node} not deleted: {e}")


def pair(text):
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"not KEY=VALUE: {text}")
    return key, value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", required=True, help="name of the Node that it creates, and deletes at its end")
    parser.add_argument("--gpus", type=int, default=0, help="allocatable nvidia.com/gpu")
    parser.add_argument("--root", required=True, help="folder for volumes, claims and logs")
    parser.add_argument("--binary-map", type=pair, action="append", default=[], metavar="COMMAND=FILE", help="a container's command[0] that equals COMMAND runs FILE")
    parser.add_argument("--no-image", type=lambda text: text.partition("=")[::2], action="append", default=[], metavar="NAME[=REASON]",
                        help="containers of this image wait: ErrImagePull and ImagePullBackOff in turn, or always for REASON")
    parser.add_argument("--api-lost", type=float, default=API_LOST_S, metavar="SECONDS", help="without an answer from the API for so long, stop everything")
    parser.add_argument("--network", metavar="PID,A.B.C", help="Pods with a subdomain have networks of their own, with addresses A.B.C.*, joined by the bridge "
                        "`pods` in the network of the process PID, which is in a user namespace of its own")
    kubelet = Kubelet(parser.parse_args())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # not in the handler itself: the main thread may be in wait() just then, and hold the event's lock
        signal.signal(number, lambda *_: threading.Thread(target=kubelet.stopping.set).start())
    sys.exit(kubelet.run())


if __name__ == "__main__":
    main()
