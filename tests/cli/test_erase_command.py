"""`erase` as a command: the plan, the confirmation, the certificate and its secret."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

from tests.cli.calling import Run
from tests.invariants.damaged_tables import keyed_table


def test_a_certificate_names_keys_only_for_who_has_the_secret(run: Run, tmp_path: Path) -> None:
    table, path = str(keyed_table(tmp_path)), tmp_path / "erased.json"
    plan = json.loads(run("erase", table, "-w", "v = 'v7'", "--dry-run", "-o", "json").out)["item"]
    assert (plan["keys"], plan["files"], plan["tags"], plan["branches"]) == (2, 4, 1, 2)
    assert plan["consumers"] == ["reader (next snapshot 3)"] and not path.exists()
    assert run("erase", table, "-w", "v = 'v7'", code=7).err.count("not confirmed")
    done = json.loads(run("erase", table, "-w", "v = 'v7'", "--certificate", str(path), "-y", "-o", "json").out)["item"]
    assert done["found"] == [] and done["rows"] == plan["rows"]
    found, secret = json.loads(path.read_text()), bytes.fromhex(Path(f"{path}.secret").read_text())
    assert Path(f"{path}.secret").stat().st_mode & 0o777 == 0o600

    def code(text: str) -> str:
        return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()

    assert found["keys"] == sorted(code(f'{{"dt":"{dt}","k":7}}') for dt in "ab")
    seal = found.pop("seal")
    assert seal == code(json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    text = Path(f"{path}.txt").read_text()
    assert "nothing was found" in text and seal in text and "v7" not in text + path.read_text()
    again = run("erase", table, "-w", "v = 'v7'", "--certificate", str(path), "-y", code=2)
    assert "a certificate is never replaced" in again.err


def test_keys_of_a_file_and_wrong_calls(run: Run, tmp_path: Path) -> None:
    table, keys = str(keyed_table(tmp_path)), tmp_path / "keys.json"
    keys.write_text('{"dt": "a", "k": 3}\n')
    assert "1 key with" in run("erase", table, "--keys", str(keys), "-y").out
    assert "name what to erase" in run("erase", table, "-y", code=2).err
    assert "name what to erase" in run("erase", table, "-w", "k = 1", "--keys", str(keys), "-y", code=2).err
    keys.write_text('{"dt": "a", "k": null}\n')
    run("erase", table, "--keys", str(keys), "-y", code=2)
    assert "is a branch" in run("erase", f"{table}$branch_b", "-w", "k = 1", "-y", code=2).err
