"""The scripts of docs/scaling.md: a batch job runs here, with `srun` replaced; the others are well formed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aptinfer as apt

DOCUMENT = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.S | re.M)


def test_scripts_are_valid_bash_and_python():
    assert len(blocks("bash")) == 2
    for script in blocks("bash"):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for script in blocks("python"):
        compile(script, "scaling.md", "exec")


def test_the_manifest_names_what_it_refers_to():
    yaml = pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    kinds = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(text)]
    assert sorted(kind for kind, _ in kinds) == [
        "Deployment",
        "Deployment",
        "Job",
        "PersistentVolumeClaim",
        "Service",
    ]
    assert text.count("tcp://model-scheduler:8786") == 2


@pytest.mark.slow
def test_the_batch_job_runs_and_carries_on(tmp_path):
    pytest.importorskip("distributed")
    model = (
        blocks("python")[0].replace("rounds=5", "rounds=1").replace("simulations=20_000", "simulations=30")
    )
    (tmp_path / "model.py").write_text(model)
    binaries = tmp_path / "home" / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text(f'export PATH="{binaries}:{Path(sys.executable).parent}:$PATH"\n')
    (binaries / "srun").write_text('#!/bin/bash\nexec "$@"\n')
    (binaries / "srun").chmod(0o755)
    assert shutil.which("dask", path=str(Path(sys.executable).parent))
    environment = os.environ | {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SLURM_JOB_ID": "1",
        "SLURM_CPUS_PER_TASK": "2",
    }
    for _ in range(2):  # the second one finds the run finished
        script = ["bash", "-c", blocks("bash")[1]]
        job = subprocess.run(
            script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert job.returncode == 0, job.stderr
        assert "theta_1" in job.stdout
    assert len(apt.open(tmp_path / "model.apt").simulations.x) == 30
    assert not list(tmp_path.glob("scheduler-*"))
    assert apt.load_posterior(tmp_path / "posterior.safetensors").sample(3).shape == (3, 2)
