"""A Flower federation on this machine: certificates, keys, SuperLink and SuperNodes, on loopback."""

from __future__ import annotations

import json
import socket
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from isfl.engines.flower.access import ACCOUNTS, add_account, log_in, stored_token
from isfl.engines.flower.apps import TRUSTED, sign
from isfl.engines.flower.control import Control
from isfl.engines.flower.keys import LOOPBACK, make_certificates, make_node_key
from isfl.engines.flower.processes import PROCESSES, Process, alive, record, runs, start, stop
from isfl.errors import UserError
from isfl.files import write_whole

CONNECTION = "isfl"
"""The connection's name in the Flower home of a deployment."""
FLOWER_HOME = "flower"
ACCOUNT = "operator"
"""The account that `up` makes."""
ISFL = (sys.executable, "-m", "isfl.cli", "flower")
UP_SECONDS = 120.0


@dataclass(frozen=True)
class Deployment:
    directory: Path
    clients: int
    secure: bool
    port: int
    """Port of the SuperLink."""
    data: tuple[str, ...] = ()
    """One data reference per client, if clients have their own data."""
    allow_code: tuple[str, ...] = ()
    """Code that the nodes let the server's configuration name, if they are secured or have their own data."""

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


def up(
    directory: Path,
    clients: int,
    secure: bool,
    tell: Callable[[str], None],
    data: Sequence[str] = (),
    allow_code: Sequence[str] = (),
    seconds: float = UP_SECONDS,
) -> Deployment:
    """Start the processes that are not running; create certificates and keys and choose a port on the first call.

    `data` has one data reference per client, if clients have their own data. Then, and if `secure`, the nodes run only
    the named code in `allow_code`.
    """
    directory = directory.absolute()
    if data and len(data) != clients:
        raise UserError(f"--data is given {len(data)} times for {clients} clients; give it once per client")
    here = [str(Path(name).absolute()) if Path(name).exists() else name for name in data]
    try:
        deployment = _settled(directory, clients, secure, here, allow_code)
    except OSError as error:
        raise UserError(f"{directory}: cannot be used ({error.strerror})") from None
    running = {process.name: process for process in alive(directory)}
    processes = dict(running)
    record(directory, processes)
    try:
        if "superlink" not in running:
            processes["superlink"] = start(directory, "superlink", _superlink(deployment), directory / FLOWER_HOME)
            record(directory, processes)
        _listening(deployment, processes["superlink"], seconds)
        if running and "superlink" not in running:
            # A SuperNode that holds a message of an ended run keeps its reply for the next run. From then on, every
            # reply is one message late. Client states are on disk, so a restart loses nothing.
            tell("the SuperLink is running again; restarting the SuperNodes")
            stop(list(running.values()))
            running = {}
        if secure:
            _register(deployment, tell)
        for k in range(clients):
            name = f"node-{k}"
            if name not in running:
                processes[name] = start(directory, name, _supernode(deployment, k), directory / FLOWER_HOME)
                record(directory, processes)
        _connected(deployment, seconds)
    except BaseException:
        stop([process for name, process in processes.items() if name not in running])
        raise
    return deployment


def down(directory: Path) -> list[str]:
    """Stop exactly the processes that `up` started in this directory; return the names of those that were running."""
    if not (directory / PROCESSES).is_file():
        raise UserError(f"{directory}: not a deployment that isfl flower up made")
    found = alive(directory)
    stop(found)
    record(directory, {})
    return [process.name for process in found]


# ------------------------------------------------------------ files


def _settled(directory: Path, clients: int, secure: bool, data: Sequence[str], allow_code: Sequence[str]) -> Deployment:
    """Return the deployment of this directory; create it if it does not exist."""
    file = directory / "deployment.json"
    if file.is_file():
        known = json.loads(file.read_text(encoding="utf-8"))
        known.setdefault("allow_code", [])
        same = (known["clients"], known["secure"]) == (clients, secure)
        same &= not data or list(data) == known["data"]
        same &= not allow_code or list(allow_code) == known["allow_code"]
        if not same:
            raise UserError(
                f"{directory}: has {known['clients']} clients, secure = {known['secure']}, data = {known['data']}, "
                f"allow_code = {known['allow_code']}; give the same options, or another --dir"
            )
        if secure and not (directory / ACCOUNTS).exists():
            raise UserError(f"{directory}: an earlier version made this secured federation; give an empty --dir")
        if secure:
            sign(directory)  # the app of an upgraded version is another one
        return Deployment(directory, clients, secure, known["port"], tuple(known["data"]), tuple(known["allow_code"]))
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory}: exists and is not a deployment; give an empty --dir")
    port = _free_port(directory)
    deployment = Deployment(directory, clients, secure, port, tuple(data), tuple(allow_code))
    for k in range(clients):
        (directory / f"node-{k}" / "state").mkdir(parents=True, mode=0o700)
    home = directory / FLOWER_HOME
    home.mkdir(mode=0o700)
    if secure:
        _make_keys(deployment)
    trust = f'root-certificates = "{directory / "ca.crt"}"' if secure else "insecure = true"
    address = f'address = "{deployment.address}"'
    lines = ["[superlink]", f'default = "{CONNECTION}"', "", f"[superlink.{CONNECTION}]", address, trust, ""]
    write_whole(home / "config.toml", "\n".join(lines).encode())
    known = {key: value for key, value in asdict(deployment).items() if key != "directory"}
    write_whole(file, json.dumps(known).encode())
    return deployment


def _make_keys(deployment: Deployment) -> None:
    """Make what a secured federation needs: at the server, at every node, and for the person who starts runs."""
    directory = deployment.directory
    make_certificates(directory)
    sign(directory)
    log_in(directory / FLOWER_HOME, deployment.address, add_account(directory, ACCOUNT))
    for k in range(deployment.clients):
        own = directory / f"node-{k}"
        make_node_key(own)
        for name in ("ca.crt", TRUSTED):
            write_whole(own / name, (directory / name).read_bytes())


# ------------------------------------------------------------ processes


def _superlink(deployment: Deployment) -> list[str]:
    directory, address = deployment.directory, ["--host", LOOPBACK, "--port", str(deployment.port)]
    if deployment.secure:
        return [*ISFL, "superlink", "--dir", str(directory), *address]
    return ["flower-superlink", "--insecure", *address, "--database", str(directory / "superlink.db")]


def _supernode(deployment: Deployment, k: int) -> list[str]:
    own = deployment.directory / f"node-{k}"
    config = f'partition-id={k} num-partitions={deployment.clients} state-dir="{own / "state"}"'
    if deployment.data:
        config += f' data="{deployment.data[k]}"'
    if deployment.data or deployment.secure:
        config += f' allow-code="{" ".join(deployment.allow_code)}"'
    if deployment.secure:
        return [*ISFL, "node", "--dir", str(own), "--superlink", deployment.address, "--node-config", config]
    return [sys.executable, "-m", "isfl.engines.flower.supernode", deployment.address, config]


def _register(deployment: Deployment, tell: Callable[[str], None]) -> None:
    """Register the nodes' public keys with the SuperLink, each key once."""
    for k in range(deployment.clients):
        own = deployment.directory / f"node-{k}"
        if (own / "registered").exists():
            continue
        try:
            control(deployment).register((own / "key.pub").read_bytes())
        except httpx.HTTPError as error:
            raise UserError(f"node {k} could not be registered: {error}") from None
        write_whole(own / "registered", b"")
        tell(f"registered the key of client {k}")


def _listening(deployment: Deployment, process: Process, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            reached = probe.connect_ex((LOOPBACK, deployment.port)) == 0
        if reached:
            time.sleep(0.5)  # if another process has the port, ours ends now
            if runs(process):
                return
        if not runs(process):
            break
        time.sleep(0.2)
    raise UserError(f"the SuperLink did not start; see {deployment.directory / 'superlink.log'}")


def _connected(deployment: Deployment, seconds: float) -> None:
    """Wait until every node is online."""
    end, seen = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seen = online(deployment)
        if seen >= deployment.clients:
            return
        time.sleep(0.3)
    raise UserError(f"{seen} of {deployment.clients} nodes connected; see {deployment.directory}/node-*.log")


def online(deployment: Deployment) -> int:
    """Return the number of nodes that the SuperLink lists as online; 0 if it does not answer."""
    try:
        return control(deployment).online()
    except httpx.HTTPError:
        return 0


def control(deployment: Deployment) -> Control:
    """Return the Control API of this deployment, with the token of its account."""
    if not deployment.secure:
        return Control(deployment.address)
    authority = (deployment.directory / "ca.crt").read_bytes()
    return Control(deployment.address, authority, stored_token(deployment.directory / FLOWER_HOME, deployment.address))


def _free_port(directory: Path) -> int:
    """Return a free port.

    The search starts at a port that depends on the directory, so that federations created at the same time do not
    choose the same port.
    """
    begin = 18000 + zlib.crc32(str(directory.absolute()).encode()) % 8000
    for port in range(begin, 30000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return port
    raise UserError(f"no free port on {LOOPBACK}")
