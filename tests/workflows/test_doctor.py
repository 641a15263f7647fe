"""doctor(): the machine as an object."""

from __future__ import annotations

from twinpass.workflows.doctor import doctor


def test_the_machine_prints_and_converts() -> None:
    machine = doctor()
    assert machine.libraries["torch"] and machine.devices[0].startswith("cpu")
    assert machine.to_dict()["threads"] == machine.threads
    parts = [record["part"] for record in machine.records() if record["part"]]
    assert parts == ["versions", "processor", "threads", "memory", "devices", "caches", "extras", "model", "runtimes"]
    assert "executed: bf16" in repr(machine) and "<table>" in machine._repr_html_()
