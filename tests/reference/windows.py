#!/usr/bin/env python3
"""Computes windowed aggregates from JSON lines, as the plugin window-aggregate has to: all records are there, none is too late.

Usage: windows.py CONFIG.json KEY TIME FILE...
CONFIG.json is the plugin's configuration; KEY and TIME are names of members: a text, and milliseconds since the Unix epoch.
Prints one JSON line for each key and window, in the order of key and start. It shares nothing with what it is to check.
"""

import collections
import decimal
import json
import sys

decimal.getcontext().prec = 200


def number(value):
    """A number as JSON, as short as it goes."""
    text = format(value.normalize(), "f")
    return "0" if text == "-0" else text


def text(value):
    return number(value) if isinstance(value, decimal.Decimal) else json.dumps(value, ensure_ascii=False)


def at(record, pointer):
    """What is at a JSON pointer; None where there is nothing."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(record, dict):
            record = record.get(token)
        elif isinstance(record, list) and token.isdigit() and int(token) < len(record):
            record = record[int(token)]
        else:
            return None
    return record


def windows(config, times):
    """The windows of the times of one key, each with the indices of its records."""
    found = collections.defaultdict(list)
    if config["type"] == "session":
        start = end = None
        members = []
        for index in sorted(range(len(times)), key=lambda index: times[index]):
            if end is not None and times[index] <= end:
                members.append(index)
            else:
                if end is not None:
                    found[(start, end)] = members
                start, members = times[index], [index]
            end = times[index] + config["gap-ms"]
        if end is not None:
            found[(start, end)] = members
        return found
    size = config["size-ms"]
    slide = config.get("slide-ms", size)
    for index, time in enumerate(times):
        start = time - (time - config.get("offset-ms", 0)) % slide
        while start + size > time:
            found[(start, start + size)].append(index)
            start -= slide
    return found


def aggregate(how, records):
    """One column of a window; the records are in the order of time."""
    function = how["function"]
    if "field" not in how:
        return str(len(records))
    values = [value for value in (at(record, how["field"]) for record in records) if value is not None]
    if function == "count":
        return str(len(values))
    if function == "count-distinct":
        return str(len({text(value) for value in values}))
    if not values:
        return "null"
    if function in ("first", "last"):
        return text(values[0 if function == "first" else -1])
    if function in ("min", "max"):
        return number(min(values) if function == "min" else max(values))
    total = sum(values)
    if function == "sum":
        return number(total)
    assert function == "avg", function
    return number((total / len(values)).quantize(decimal.Decimal("1e-12"), decimal.ROUND_HALF_UP))


def main(config, key, time, *files):
    with open(config, encoding="utf-8") as file:
        config = json.load(file)
    by_key = collections.defaultdict(list)
    for name in files:
        with open(name, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line, parse_int=decimal.Decimal, parse_float=decimal.Decimal)
                by_key[record[key]].append((int(record[time]), record))
    for name, records in sorted(by_key.items()):
        records.sort(key=lambda record: record[0])
        found = windows(config["window"], [at for at, _ in records])
        for (start, end), members in sorted(found.items()):
            columns = [
                f',{json.dumps(how.get("name", how["function"]))}:{aggregate(how, [records[index][1] for index in members])}'
                for how in config["aggregates"]
            ]
            print(f'{{"key":{json.dumps(name)},"start":{start},"end":{end}{"".join(columns)}}}')


main(*sys.argv[1:])
