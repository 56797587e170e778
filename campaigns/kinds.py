"""Every kind of fault, in groups: a group is one table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from campaigns import damage, deployed, disk, kills, neighbours
from campaigns.reference import places
from campaigns.verdicts import Kind

KILLS: Mapping[str, Kind] = {
    "kill": Kind("SIGKILL at a random time, one process", 40, 3, partial(kills.killed_at_random, 1, False)),
    "kill-workers": Kind("SIGKILL at a random time, two workers", 25, 2, partial(kills.killed_at_random, 2, False)),
    "kill-all": Kind("SIGKILL of the run and its workers", 15, 2, partial(kills.killed_at_random, 2, True)),
    "kill-one": Kind("SIGKILL of one worker", 20, 2, kills.worker_killed),
    "kill-in-write": Kind(
        "SIGKILL in a file operation, half written", lambda at: len(places(at)), 6, kills.killed_in_operation, 3.0
    ),
}

DISKS: Mapping[str, Kind] = {
    "no-space": Kind(
        "disk full from a file operation on", lambda at: len(places(at, True)), 6, disk.fails_at_operation, 3.0
    ),
    "file-limit": Kind("disk full in the middle of a write", 40, 3, disk.limited_files),
    "small-disk": Kind("file system of 16 to 320 kB", 20, 2, disk.small_file_system, why_not=disk.why_no_mount),
}

DAMAGE: Mapping[str, Kind] = {
    "damage": Kind(
        "stopped run: file cut, emptied, removed, bit flipped",
        partial(damage.cases_of_run, False),
        12,
        partial(damage.run_directory, False),
        2.0,
    ),
    "damage-finished": Kind(
        "finished run: the same", partial(damage.cases_of_run, True), 8, partial(damage.run_directory, True)
    ),
    "damage-cache": Kind("cached data set: the same", 100, 20, damage.cached_data),
    "damage-library": Kind(
        "compiled library: the same",
        damage.cases_of_library,
        2,
        damage.compiled_library,
        2.0,
        why_not=damage.why_no_library,
    ),
}

OTHERS: Mapping[str, Kind] = {
    "together": Kind("two or three processes on one run", 20, 2, neighbours.together),
    "clock": Kind("clock set back by up to 30 years, and a kill", 12, 1, neighbours.clock_goes_back),
    "memory": Kind("memory limit of the workers", 20, 3, neighbours.memory_of_a_worker),
}

DEPLOYED: Mapping[str, Kind] = {
    "deployed": Kind("SIGKILL of server app, client app, SuperLink, SuperNode", 8, 1, deployed.killed, lanes=2),
}

GROUPS: Mapping[str, tuple[str, Mapping[str, Kind]]] = {
    "kills": ("Kills", KILLS),
    "disks": ("Full disks", DISKS),
    "damage": ("Damaged files", DAMAGE),
    "others": ("Neighbours, clock and memory", OTHERS),
    "deployed": ("Kills of deployed runs", DEPLOYED),
}
