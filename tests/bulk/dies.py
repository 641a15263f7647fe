"""A program that runs a command and dies by SIGKILL after the third finished shard."""

DIES = """
import os, signal, sys
from twinpass.bulk.shards import Job
from twinpass.cli.main import main

note = Job.note

def note_and_die(self, made):
    note(self, made)
    if len(self.finished()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

Job.note = note_and_die
main(sys.argv[1:])
"""
