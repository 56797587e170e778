"""Campaigns of counted faults: kills, full disks, damaged files, malformed inputs (`docs/reliability.md`)."""
