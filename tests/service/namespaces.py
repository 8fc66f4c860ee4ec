"""Hosts of a test's own: network namespaces on one switch, whose links go down and lose packets. Needs root,
and ip (package iproute2); for loss, nft (nftables).

What a namespace has of the machine is everything but its network: files, processes and the clock are the
same."""

import os
import shutil
import subprocess

from cluster import Cluster
from deadlines import HANG_S, SILENCE_S

SUBNET = "10.203.77"
HUB = "hub"


def run(*words):
    done = subprocess.run(
        [str(w) for w in words], check=False, capture_output=True, text=True, timeout=HANG_S
    )
    if done.returncode != 0:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def missing(*programs):
    """Why there can be no hosts here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", *programs):
        if not shutil.which(program):
            return f"{program} is not there"
    name = f"cachew-try-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
    except OSError as e:
        return str(e)
    try:
        run("ip", "-n", name, "link", "add", "try0", "type", "veth", "peer", "name", "try1")
        run("ip", "-n", name, "link", "add", "try2", "type", "bridge")
        if "nft" in programs:
            run(
                "ip",
                "netns",
                "exec",
                name,
                "nft",
                "add table inet try; add chain inet try c { type "
                "filter hook input priority 0; }; "
                "add rule inet try c numgen random mod 100 < 20 drop",
            )
    except OSError as e:
        return str(e)
    finally:
        run("ip", "netns", "del", name)
    return None


class Hosts:
    """Namespaces by name, each with one link, eth0, to the switch."""

    def __init__(self, *names):
        self.names, self.made = {name: i + 1 for i, name in enumerate(names)}, []
        self.make(HUB)
        run("ip", "-n", self.namespace(HUB), "link", "add", "switch", "type", "bridge")
        run("ip", "-n", self.namespace(HUB), "link", "set", "switch", "up")
        for name, i in self.names.items():
            self.make(name)
            run(
                "ip",
                "-n",
                self.namespace(HUB),
                "link",
                "add",
                f"port{i}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                self.namespace(name),
            )
            run("ip", "-n", self.namespace(HUB), "link", "set", f"port{i}", "master", "switch", "up")
            run("ip", "-n", self.namespace(name), "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("ip", "-n", self.namespace(name), "link", "set", link, "up")

    def namespace(self, name):
        return f"cachew-{os.getpid()}-{name}"

    def make(self, name):
        run("ip", "netns", "add", self.namespace(name))
        self.made.append(name)

    def address(self, name):
        return f"{SUBNET}.{self.names[name]}"

    def inside(self, name):
        """What a command is started by there, as words before it."""
        return ["ip", "netns", "exec", self.namespace(name)]

    def down(self, name):
        """Nothing comes or goes, and nobody is told."""
        run("ip", "-n", self.namespace(HUB), "link", "set", f"port{self.names[name]}", "down")

    def up(self, name):
        run("ip", "-n", self.namespace(HUB), "link", "set", f"port{self.names[name]}", "up")

    def lose(self, name, other, percent):
        """Of what `name` gets from `other`, and the other way round."""
        for here, there in ((name, other), (other, name)):
            run(
                *self.inside(here),
                "nft",
                "add table inet lossy; add chain inet lossy in { type filter "
                "hook input priority 0; }; "
                f"add rule inet lossy in ip saddr {self.address(there)} numgen random mod 100 < {percent} "
                f"counter drop",
            )

    def lost(self, name):
        """Packets."""
        words = run(*self.inside(name), "nft", "list table inet lossy").split()
        return int(words[words.index("packets") + 1])

    def close(self):
        for name in self.made:
            run("ip", "netns", "del", self.namespace(name))


class NetCluster(Cluster):
    """Dispatcher, workers and clients on hosts of their own: "d", the worker's key, "c"."""

    def __init__(self, hosts, **options):
        super().__init__(
            dispatcher_words=["--insecure"], worker_words=["--insecure"], silence_s=SILENCE_S, **options
        )
        self.hosts = hosts
        self.direct = f"{hosts.address('d')}:0"

    def prefix(self, name):
        role = name.split("-")[0]
        return self.hosts.inside(
            "d" if role in ("dispatcher", "jobs", "workers") else "c" if role == "client" else role
        )

    def worker_listens(self, key):
        return f"{self.hosts.address(key)}:0"
