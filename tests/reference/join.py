#!/usr/bin/env python3
"""Joins two sets of JSON lines by key and time, as the plugin join has to, by comparing each with each: none is too late.

Usage: join.py CONFIG.json KEY TIME LEFT... -- RIGHT...
CONFIG.json is the plugin's configuration; KEY and TIME are names of members: a text, and milliseconds since the Unix epoch.
Prints one JSON line for each pair, with the values as they are written. It shares nothing with what it is to check.
"""

import json
import sys


def read(names, key, time):
    records = []
    for name in names:
        with open(name, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                records.append((record[key], record[time], line.rstrip("\n")))
    return records


def main(config, key, time, *files):
    with open(config, encoding="utf-8") as file:
        config = json.load(file)
    cut = files.index("--")
    left, right = read(files[:cut], key, time), read(files[cut + 1 :], key, time)
    names = [json.dumps(config.get(side + "-name", side)) for side in ("left", "right")]
    by_key = {}
    for record in right:
        by_key.setdefault(record[0], []).append(record)
    for name, at, value in left:
        partners = [
            other
            for _, when, other in by_key.get(name, [])
            if at + config["lower-ms"] <= when <= at + config["upper-ms"]
        ]
        if not partners and config.get("type") == "left-outer":
            partners = ["null"]
        for other in partners:
            print(f'{{"key":{json.dumps(name)},{names[0]}:{value},{names[1]}:{other}}}')


main(*sys.argv[1:])
