"""The README's commands, to their end, on a Debian that has only what the README asks for."""

import os
import re
import shlex
import shutil
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TREES = "/var/tmp/ropewalk-packaging-test"
RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
# The base system, and what the README asks for beside Rust.
PACKAGES = "git,curl,ca-certificates,build-essential"
PATH = "/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How this machine reaches the registries, where it needs settings for that: files, and the environment.
SETTINGS = [
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/pip.conf",
    "/usr/local/share/ca-certificates",
    "/root/.config/pip",
    "/root/.npmrc",
    "/root/.cargo/config.toml",
]
VARIABLES = re.compile(r".*(proxy|certs?|cert_file|cainfo|ca_bundle|index_url|registry)", re.IGNORECASE)
# The tree's own processes and devices. What is mounted or started ends with the command. Whoever is in a chroot can't
# make user namespaces, so the root is changed by pivot_root.
ENTER = """
mount --bind "$0" "$0"; cd "$0"
mount -t proc proc proc; mount -t tmpfs run run; mount --rbind /sys sys; mount --rbind /dev dev
pivot_root . .; umount -l .; cd /
exec bash -c "$1"
"""
STEP = re.compile(r"^== (.*) \((\d+) s\)$")


def commands():
    """The commands under "Install" in the README, without their comments."""
    with open(os.path.join(ROOT, "README.md")) as file:
        block = re.search(r"^## Install\n.*?^```sh\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)[1]
    return [re.split(r"\s+#", line)[0] for line in block.splitlines()]


class Tree:
    """Debian in a folder. What debootstrap made is kept, and each run has a copy."""

    def __init__(self, release):
        self.base = os.path.join(TREES, f"{release}.base")
        self.root = os.path.join(TREES, release)
        if not os.path.exists(self.base):
            self.bootstrap(release)
        self.remove()
        subprocess.run(["cp", "-a", "--reflink=auto", self.base, self.root], check=True)
        for path in SETTINGS:
            self.copy(path)
        apt = "/etc/apt/apt.conf.d"
        for name in os.listdir(apt) if os.path.isdir(apt) else []:
            with open(os.path.join(apt, name)) as file:
                if "Acquire::" in file.read():
                    self.copy(os.path.join(apt, name))
        self.call("update-ca-certificates", os.devnull)

    def bootstrap(self, release):
        """Makes the tree that is copied."""
        print(f"debootstrap in {self.base}", flush=True)
        unfinished = f"{self.base}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        line = f"debootstrap --variant=minbase --include={PACKAGES} {release} {unfinished}"
        line += " http://deb.debian.org/debian"
        subprocess.run(shlex.split(line), check=True, stdout=subprocess.DEVNULL)
        os.rename(unfinished, self.base)

    def path(self, inside):
        """Where a path of the tree is on this machine."""
        return os.path.join(self.root, inside.lstrip("/"))

    def copy(self, path):
        """Copies a file or a folder of this machine to the same place in the tree."""
        if os.path.exists(path):
            os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
            subprocess.run(["cp", "-a", "-T", os.path.realpath(path), self.path(path)], check=True)

    def install_rust(self, log):
        """Installs the toolchain `stable` with rustup; where that can't download, copies this machine's."""
        bins = self.path("root/.cargo/bin")
        os.makedirs(bins, exist_ok=True)
        shutil.copy2(os.path.realpath(shutil.which("rustup")), os.path.join(bins, "rustup"))
        for tool in ("rustc", "cargo", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver"):
            os.symlink("rustup", os.path.join(bins, tool))
        if self.call("rustup toolchain install stable --profile minimal", log) != 0:
            line = shlex.split("rustup which --toolchain stable rustc")
            rustc = subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()
            toolchain = os.path.dirname(os.path.dirname(rustc))
            there = self.path(f"root/.rustup/toolchains/{os.path.basename(toolchain)}")
            print(f"rustup can't download: {toolchain} is copied", flush=True)
            shutil.rmtree(there, ignore_errors=True)
            shutil.copytree(toolchain, there, symlinks=True, ignore=shutil.ignore_patterns("share"))
        self.call("rustup default stable && rustc --version", log)
        with open(log) as file:
            print(file.read().splitlines()[-1], flush=True)

    def call(self, command, log):
        """Runs a command in the clone, or else at home; its exit code. What it says goes to the log."""
        known = {"HOME": "/root", "PATH": PATH, "LANG": "C.UTF-8"}
        known |= {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}
        line = shlex.split("unshare --mount --pid --fork --kill-child sh -ec")
        line += [ENTER, self.root, f"cd /root/ropewalk 2>/dev/null || cd; {command}"]
        with open(log, "w") as out:
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            return subprocess.run(line, env=known, **files).returncode

    def remove(self):
        """Removes the copy."""
        subprocess.run(["rm", "-rf", "--one-file-system", self.root], check=True)


def steps(lines, seconds):
    """The steps that a script announced, and the seconds that each took."""
    begun = [(match[1], int(match[2])) for match in map(STEP.match, lines) if match]
    ends = [at for _, at in begun[1:]] + [seconds]
    return [(name, end - at) for (name, at), end in zip(begun, ends, strict=False)]


def run_command(tree, command, log, check):
    """Runs one command, and tells what came of it."""
    begin = time.monotonic()
    code = tree.call(command, log)
    seconds = round(time.monotonic() - begin)
    check(f"`{command}`", code == 0, f"{seconds} s, all that it said: {log}")
    with open(log, errors="replace") as file:
        lines = file.read().splitlines()
    print("its last ten lines:", *lines[-10:], sep="\n")
    if table := steps(lines, seconds):
        print("\n| step | seconds |\n|---|---:|", *(f"| {name} | {took} |" for name, took in table), sep="\n")
    skipped = [line for line in lines if re.search("skipped|unchecked", line)]
    print("what was skipped:", *(skipped or ["nothing"]), sep="\n  ", flush=True)


def fresh(options, check):
    """Runs the README's commands on each release."""
    for release in options.release or RELEASES:
        print(f"\n= {RELEASES[release]}", flush=True)
        tree, failed = Tree(release), check.failed
        tree.install_rust(os.path.join(TREES, f"{release}-rust.log"))
        # What is committed, and nothing else.
        clone = ["git", "clone", "-q", "--depth=1", f"file://{ROOT}", tree.path("root/ropewalk")]
        subprocess.run(clone, check=True)
        for number, command in enumerate(commands(), 1):
            if options.only in (None, number):
                run_command(tree, command, os.path.join(TREES, f"{release}-{number}.log"), check)
        log = os.path.join(TREES, f"{release}-status.log")
        tree.call("git status --porcelain", log)
        with open(log) as file:
            left = file.read()
        check("`git status` shows nothing", left == "", left)
        if check.failed == failed:
            tree.remove()
        else:
            print(f"the tree is kept: {tree.root}")
