"""The command line: main.py and one short file per verb."""
