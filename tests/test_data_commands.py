"""`isfl data`: list, get and show."""

from __future__ import annotations

from pathlib import Path

from tests.commands import isfl


def test_data_commands(tmp_path: Path) -> None:
    listed = isfl("data", "list", cwd=tmp_path, columns=80)
    assert listed.returncode == 0 and "cifar10" in listed.stdout and "module:function" in listed.stdout
    got = isfl("data", "get", "digits", cwd=tmp_path, columns=80)
    assert "1297 + 500 samples of shape (1, 8, 8), 10 classes" in got.stdout
    (tmp_path / "c.toml").write_text(
        "[data]\nname = 'digits'\npublic = 50\n[split]\nkind = 'dirichlet'\nsamples_per_client = 100\n"
    )
    shown = isfl("data", "show", "c.toml", cwd=tmp_path, columns=80)
    assert shown.returncode == 0, shown.stderr
    assert "Hellinger" in shown.stdout and (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    assert max(map(len, shown.stdout.splitlines())) <= 80 and "…" not in shown.stdout
    wrong = isfl("data", "get", "mnist", cwd=tmp_path, columns=80)
    assert wrong.returncode == 2 and "data.name is 'mnist'" in wrong.stderr
