"""Builds the container recipe with buildah, and mounts what came of it."""

import json
import os
import re
import shlex
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
RECIPE = os.path.join(HERE, "container/Dockerfile")
# The host's authorities: a network may have one of its own between it and the registries.
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
IMAGE = "ropewalk"


class Images:
    """Images in a folder of their own: buildah's store."""

    def __init__(self, folder):
        self.store = f"buildah --root {folder}/storage --runroot {folder}/run"
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    def run(self, command, log=None):
        """Runs buildah; its standard output. With a log all that it says goes there."""
        line = shlex.split(f"{self.store} {command}")
        with open(log or os.devnull, "w") as file:
            out, errors = (file, subprocess.STDOUT) if log else (subprocess.PIPE, subprocess.PIPE)
            done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"buildah {command}: " + (f"see {log}" if log else done.stderr.strip()))
        return (done.stdout or "").strip()

    def has(self, name):
        """Whether an image is in the store."""
        line = shlex.split(f"{self.store} inspect --type image {name}")
        return subprocess.run(line, capture_output=True).returncode == 0

    def inside(self, container, script):
        """Runs a script in a container, with the host's network."""
        self.run(f"run --isolation chroot --network host {container} -- sh -ec {shlex.quote(script)}")

    def make_debian(self, name):
        """Debian as an image of this name, by debootstrap."""
        suite = re.search(r":(\w+)", name)[1]
        tree = os.path.join(self.folder, suite)
        command = f"debootstrap --variant=minbase {suite} {tree} http://deb.debian.org/debian"
        subprocess.run(shlex.split(command), check=True, stdout=subprocess.DEVNULL)
        container = self.run("from scratch")
        self.run(f"add -q {container} {tree} /")
        self.run(f"commit -q --rm {container} {name}")
        shutil.rmtree(tree)

    def make_rust(self, name, debian):
        """Debian with the host's toolchain as an image of this name: what `rust:...-slim` has."""
        container = self.run(f"from {debian}")
        packages = "ca-certificates gcc libc6-dev"
        self.inside(container, f"apt-get -qq update; apt-get -qq install -y --no-install-recommends {packages}")
        rust = subprocess.run(
            ["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True, cwd=ROOT
        ).stdout.strip()
        for part in ("bin", "lib"):
            self.run(f"add -q {container} {rust}/{part} /usr/local/rust/{part}")
        path = "/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.run(f"config --env PATH={path} --env CARGO_HOME=/usr/local/cargo {container}")
        self.run(f"commit -q --rm {container} {name}")

    def build(self, from_registry):
        """Builds the recipe as it is written; its bases are made here, unless they come from their registry."""
        with open(RECIPE) as file:
            bases = dict(re.findall(r"^ARG (\w+)=(\S+)", file.read(), re.MULTILINE))
        if not from_registry:
            if not self.has(bases["DEBIAN"]):
                self.make_debian(bases["DEBIAN"])
            if not self.has(bases["RUST"]):
                self.make_rust(bases["RUST"], bases["DEBIAN"])
        mount = f"-v {AUTHORITIES}:{AUTHORITIES}:ro" if os.path.exists(AUTHORITIES) else ""
        log = os.path.join(self.folder, "build.log")
        self.run(f"build --layers --isolation chroot --network host {mount} -f {RECIPE} -t {IMAGE} {ROOT}", log)

    def entrypoint(self):
        """The image's program, as a list of words."""
        return json.loads(self.run(f"inspect --type image {IMAGE}"))["OCIv1"]["config"]["Entrypoint"]

    def __enter__(self):
        self.container = self.run(f"from {IMAGE}")
        return self.run(f"mount {self.container}")

    def __exit__(self, *_):
        self.run(f"rm {self.container}")
