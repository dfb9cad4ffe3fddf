"""A machine of QEMU's with another kernel, as the peer of packaging/peers: its links are those of a namespace.

It is emulated (TCG), since KVM isn't everywhere; a whole run of the cases takes some minutes.
"""

import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import time

# Debian's, not a virtual environment's: its libraries are found by ldd.
PYTHON = "/usr/bin/python3"
PROGRAMS = ["busybox", "ip", "mptcpize", "nstat"]
# Modules for virtio's network cards and kernel TLS, in the order of loading; those that the kernel has built in are skipped.
MODULES = ["ipv6", "failover", "net_failover", "virtio_net", "gf128mul", "aesni-intel", "ctr", "gcm", "tls"]
READY, ENDED = "the machine is ready", "the command has ended:"
INIT = (
    """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mkdir -p /tmp /run; mount -t tmpfs tmp /tmp
export PATH=/usr/sbin:/sbin:/usr/bin:/bin
# Debian's busybox-static takes its own `ip` before that of the path.
ip() { IP "$@"; }
for module in /modules/*; do insmod $module; done
ip link set lo up
. /settings
echo "READY: $(uname -r)"
sh /command
echo "ENDED: $?"
poweroff -f
""".replace("READY", READY)
    .replace("ENDED", ENDED)
    .replace("IP", shutil.which("ip") or "")
)


def missing(folder):
    """What is missing for a machine with the kernel in a folder, or None."""
    programs = [name for name in ("qemu-system-x86_64", "busybox", "ldd", "xz") if not shutil.which(name)]
    if programs:
        return f"apt-get install {' '.join(programs)}"
    if not folder or not glob.glob(os.path.join(folder, "usr/lib/modules/*/vmlinuz")):
        return (
            "--kernel FOLDER: Debian's packages linux-binary-*-cloud-amd64 and linux-modules-*-cloud-amd64, unpacked (dpkg -x)"
        )
    return None


def add(root, path):
    """Copies a program, or a library, with the libraries that it needs."""
    target = root + path
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(path, target)
    needed = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", needed):
        add(root, library)


def make_root(root, kernel):
    """The file system: Python, mptcpize, ip, and the kernel's modules."""
    for name in PROGRAMS:
        add(root, shutil.which(name))
    if not os.path.exists(f"{root}/bin/busybox"):
        add(root, "/bin/busybox")
    add(root, os.path.realpath(PYTHON))
    os.symlink(os.path.basename(os.path.realpath(PYTHON)), root + PYTHON)
    library = f"/usr/lib/{os.path.basename(os.path.realpath(PYTHON))}"
    unneeded = shutil.ignore_patterns("__pycache__", "test", "tests", "idlelib", "lib2to3", "dist-packages", "config-*")
    shutil.copytree(library, root + library, ignore=unneeded, symlinks=True, ignore_dangling_symlinks=True)
    for one in glob.glob(f"{library}/lib-dynload/*.so") + glob.glob("/usr/lib/*/mptcpize/*.so.0*"):
        # Those that were copied with the folder may need libraries.
        if os.path.exists(root + one):
            os.remove(root + one)
        add(root, one)
    os.makedirs(f"{root}/modules")
    for at, name in enumerate(MODULES):
        for path in glob.glob(f"{kernel}/kernel/**/{name}.ko*", recursive=True):
            with open(f"{root}/modules/{at}-{name}.ko", "wb") as file:
                reader = ["xz", "-dc", path] if path.endswith(".xz") else ["cat", path]
                subprocess.run(reader, check=True, stdout=file)
    for name in ("proc", "sys", "dev"):
        os.makedirs(f"{root}/{name}")
    with open(f"{root}/init", "w") as file:
        file.write(INIT)
    os.chmod(f"{root}/init", 0o755)


class Machine:
    """The peer of a stage: the client's place, or the server's."""

    def __init__(self, stage, side, folder):
        self.stage, self.name, self.folder = stage, stage.names[side], folder
        self.host, self.side, self.place = (1, 2)[side], side, os.path.join(stage.folder, "machine")
        self.log = os.path.join(stage.folder, "machine.log")
        self.release = None

    def start(self, command, files, settings):
        """Boots it with some files in /, and has it run a command; waits until it does."""
        kernel = glob.glob(os.path.join(self.folder, "usr/lib/modules/*"))[0]
        root = self.place
        if not os.path.exists(root):
            make_root(root, kernel)
        for path in files:
            shutil.copy(path, root)
        lines = []
        for i in (0, 1):
            # Its interface takes the namespace's place: both hang on a bridge.
            for line in (
                f"ip address flush dev eth{i}",
                f"ip tuntap add tap{i} mode tap",
                f"ip link add bridge{i} type bridge",
                f"ip link set tap{i} master bridge{i} up",
                f"ip link set eth{i} master bridge{i}",
                f"ip link set bridge{i} up",
            ):
                self.stage.run(self.name, line)
            lines += [f"ip address add 10.0.{i}.{self.host}/24 dev eth{i}", f"ip link set eth{i} up"]
        with open(f"{root}/settings", "w") as file:
            file.write("\n".join([*lines, *settings]) + "\n")
        with open(f"{root}/command", "w") as file:
            file.write(command + "\n")
        names = subprocess.run(["find", ".", "-print"], cwd=root, check=True, capture_output=True, text=True).stdout
        packed = subprocess.run(
            ["busybox", "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(), capture_output=True, check=True
        )
        image = f"{root}.img"
        with gzip.open(image, "wb", compresslevel=1) as file:
            file.write(packed.stdout)
        cards = "".join(
            f" -netdev tap,id=n{i},ifname=tap{i},script=no,downscript=no"
            f" -device virtio-net-pci,netdev=n{i},mac=52:54:00:00:0{self.side}:0{i}"
            for i in (0, 1)
        )
        line = (
            f"qemu-system-x86_64 -accel tcg -cpu max -m 1024 -smp 1 -nographic -no-reboot -nodefaults -serial stdio{cards}"
            f" -kernel {kernel}/vmlinuz -initrd {image} -append 'console=ttyS0 quiet net.ifnames=0 panic=-1'"
        )
        with open(self.log, "w") as file:
            self.child = subprocess.Popen(
                self.stage.inside(self.name, line), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self.stage.children.append(self.child)
        self.release = self.wait(READY, 200).split()[0]

    def wait(self, word, seconds):
        """Waits until it has said something; what follows on that line."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with open(self.log, errors="replace") as file:
                if found := re.search(rf"{re.escape(word)}:? *(.*)", file.read()):
                    return found[1].strip()
            if self.child.poll() is not None:
                break
            time.sleep(0.1)
        with open(self.log, errors="replace") as file:
            sys.exit(f"the machine doesn't say `{word}`: {file.read()[-3000:]}")

    def run(self, seconds):
        """Waits for the command's end; what it printed."""
        self.wait(ENDED, seconds)
        with open(self.log, errors="replace") as file:
            text = file.read().replace("\r", "")
        return text.partition(READY)[2].partition("\n")[2].partition(ENDED)[0]
