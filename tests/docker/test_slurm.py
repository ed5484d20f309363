# SPDX-License-Identifier: Apache-2.0
# ctest: labels=docker,full seconds=180 thirds=4
"""Debian's Slurm as a cluster of one node: a container in which systemd runs munge, slurmctld, slurmd and Cairn's
units. Prolog, epilog and the batch script of packaging/slurm are used as a site uses them."""
import re

import engine
from engine import docker, run, wait_until

IMAGE = "cairn-test-slurm"
DOCKERFILE = f"""
FROM {engine.BASE}
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN printf 'force-unsafe-io\\n' >/etc/dpkg/dpkg.cfg.d/image && apt-get update -qq && \\
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd systemd-sysv dbus \\
        slurmctld slurmd slurm-client munge libjansson4 libcurl4 libexpat1 libmicrohttpd12 libsqlite3-0 libpq5 >/dev/null
COPY --from=cairn /usr/ /usr/
COPY --from=cairn-example-job /usr/bin/cairn-example-job /usr/bin/
COPY *.service /lib/systemd/system/
COPY cairn.sysusers /usr/lib/sysusers.d/cairn.conf
COPY cairn.tmpfiles /usr/lib/tmpfiles.d/cairn.conf
COPY slurm/ /usr/share/cairn/slurm/
RUN ldconfig && systemd-sysusers && systemd-tmpfiles --create /usr/lib/tmpfiles.d/cairn.conf && \\
    useradd --uid 1000 --create-home --home-dir /srv/trainer trainer && install -d -o cairn -g cairn -m 0750 /srv/store && \\
    install -d -o slurm -g slurm /var/lib/slurm/slurmctld && install -d /etc/cairn && \\
    printf 'store = /srv/store\\n' >/etc/cairn/server.conf && \\
    printf 'store = /srv/store\\nmemory_budget = 128MiB\\nallow_uids = any\\n' >/etc/cairn/uploader.conf && \\
    for unit in server uploader; do mkdir -p /etc/systemd/system/cairn-$unit.service.d; \\
        printf '[Service]\\nReadWritePaths=/srv/store\\n' >/etc/systemd/system/cairn-$unit.service.d/store.conf; done
"""
# cred_expire: how long Slurm keeps a job that is queued again from beginning.
CONF = """
ClusterName=one
SlurmctldHost=node-1
AuthInfo=cred_expire=5
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
SchedulerParameters=sched_interval=1,bf_interval=1
Prolog=/usr/share/cairn/slurm/prolog.sh
Epilog=/usr/share/cairn/slurm/epilog.sh
NodeName=node-1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def setUpModule():
    engine.needed()
    engine.build_all()
    try:
        run("docker", "build", "--network", "host", "-q", "-t", IMAGE, "-f", "-", engine.ROOT / "packaging",
            input=DOCKERFILE, env={**engine.os.environ, "DOCKER_BUILDKIT": "0"})
    except AssertionError as why:
        engine.skip(f"Slurm cannot be had: {why}")


class Slurm(engine.Case):
    @classmethod
    def setUpClass(cls):
        cls.node = engine.boot(IMAGE, "--hostname", "node-1", network="bridge")
        cls.addClassCleanup(docker, "rm", "-f", "-v", cls.node, check=False)
        cls.run_in(f"mkdir -p /etc/slurm && cat >/etc/slurm/slurm.conf <<'END'\n{CONF}\nEND\n"
                   "systemctl start munge cairn-server && systemctl restart slurmctld slurmd")
        wait_until(lambda: cls.state() == "idle")

    @classmethod
    def run_in(cls, text, check=True):
        return docker("exec", cls.node, "bash", "-c", text, check=check)

    @classmethod
    def state(cls):
        return cls.run_in("sinfo -h -n node-1 -o %T", check=False).stdout.strip()

    def batch(self, words):
        """The id of a job that the user trainer hands in."""
        return self.run_in("cd /srv/trainer && setpriv --reuid 1000 --regid 1000 --clear-groups sbatch --parsable "
                           f"{words}").stdout.strip()

    def job(self, number):
        said = self.run_in(f"scontrol show job {number} -o", check=False).stdout
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def log(self, number):
        return self.run_in(f"cat /srv/trainer/slurm-{number}.out", check=False).stdout

    def ended(self, number):
        wait_until(lambda: self.job(number).get("JobState") in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"))
        self.assertEqual(self.job(number)["JobState"], "COMPLETED", self.log(number))

    def test_a1_the_prolog_starts_the_uploader_and_a_job_that_is_signalled_saves_is_queued_again_and_ends(self):
        self.assertNotEqual(self.run_in("systemctl is-active cairn-uploader", check=False).stdout.strip(), "active")
        # A minute before the end of one minute: at once, as soon as Slurm looks.
        number = self.batch("--nodes=1 --ntasks-per-node=2 --time=1 --signal=USR1@60 /usr/share/cairn/slurm/job.sbatch "
                            "--steps 3000 --every 10 --step-ms 50 --elements 20000")
        wait_until(lambda: int(self.job(number).get("Restarts", 0)) == 1)
        self.run_in(f"scontrol update job {number} TimeLimit=60")
        self.assertEqual(self.run_in("systemctl is-active cairn-uploader").stdout.strip(), "active")
        said = wait_until(lambda: (lambda said: "resumed from step" in said and said)(self.log(number)))
        first, second = said.split("resumed from step", 1)
        self.assertRegex(first, r"stopped at step \d+")
        step = int(re.search(r"stopped at step (\d+)", first).group(1))
        self.assertEqual(int(second.split()[0]), step)
        self.run_in(f"scancel {number}")
        wait_until(lambda: self.state() == "idle")

    def test_a2_a_node_that_cannot_save_is_drained_and_its_job_waits(self):
        self.run_in("systemctl stop cairn-uploader && mv /etc/cairn/uploader.conf /etc/cairn/away && "
                    "printf 'store = /nowhere/at/all\\n' >/etc/cairn/uploader.conf")
        number = self.batch("--wrap true")
        wait_until(lambda: self.state().startswith("drain"))
        wait_until(lambda: self.job(number).get("JobState") == "PENDING")
        self.run_in("mv /etc/cairn/away /etc/cairn/uploader.conf && systemctl reset-failed cairn-uploader; "
                    "scontrol update node=node-1 state=resume")
        self.run_in(f"scontrol release {number}", check=False)
        self.ended(number)

    def test_a3_the_epilog_holds_the_node_until_what_was_staged_is_sent(self):
        number = self.batch("--wrap 'exec cairn-example-job slurm/late --steps 100000 --every 10 --step-ms 50 --elements 1000'")
        wait_until(lambda: "step 20 staged" in self.log(number))
        self.run_in("systemctl stop cairn-server")
        before = self.log(number).count("staged")
        wait_until(lambda: self.log(number).count("staged") > before + 1)
        self.run_in(f"scancel --full --signal=KILL {number}")
        wait_until(lambda: self.state() == "completing")
        self.run_in("systemctl start cairn-server")
        wait_until(lambda: self.state() == "idle")
        last = re.findall(r"step (\d+) staged", self.log(number))[-1]
        self.assertIn("committed", self.run_in(f"cairn show slurm/late@{last}").stdout)


if __name__ == "__main__":
    engine.main()
