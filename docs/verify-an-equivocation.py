"""python verify-an-equivocation.py FILE [LOG_KEY..]: proves that a log signed two histories (docs/monitor.md), offline.

Needs the package `cryptography`. LOG_KEY is a verifier key of the log; without one those in the file are believed, which
shows only that their holder equivocated. Exits 0 if the equivocation is proven, else 1.
"""

import base64
import binascii
import hashlib
import json
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NOTE = 0x01


class Bad(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Bad(what)


sha256 = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
parent = lambda left, right: sha256(b"\x01", left, right)
unpacked = lambda text: base64.b64decode(text, validate=True)


def vkey(text):
    """Name, id and key of a signed-note verifier key (c2sp.org/signed-note)."""
    name, ident, material = text.split("+", 2)
    raw = unpacked(material)
    require(len(raw) == 33 and raw[0] == NOTE, f"{text} is no verifier key of a log")
    require(sha256(name.encode(), b"\n", raw)[:4].hex() == ident, f"{text} has another key id")
    return name, bytes.fromhex(ident), raw[1:]


def opened(note, origin, keys):
    """Size and root of a checkpoint that a key of the log signed (c2sp.org/tlog-checkpoint)."""
    split = note.rindex("\n\n")
    text, lines = note[: split + 1], note[split + 2 : -1].split("\n")
    signed = False
    for line in lines:
        dash, name, blob = line.split(" ")
        require(dash == "\u2014", "a signature line without a dash")
        raw = unpacked(blob)
        for owner, ident, key in keys:
            if name == owner == origin and raw[:4] == ident:
                Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], text.encode())
                signed = True
    require(signed, f"a checkpoint that no key of {origin} signed")
    first, size, root = text.split("\n")[:3]
    require(first == origin, f"a checkpoint of {first}")
    require(size.isascii() and size.isdigit() and str(int(size)) == size, f"not a size: {size}")
    require(len(unpacked(root)) == 32, "not a root")
    return int(size), unpacked(root)


def roots(smaller, larger, nodes):
    """Root of the first leaves and of all leaves, from nodes of the larger tree (RFC 9162 section 2.1.4.2)."""
    require(nodes and all(len(node) == 32 for node in nodes), "no nodes of 32 bytes")
    at, last = smaller - 1, larger - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    prefix = whole = nodes[0]
    for node in nodes[1:]:
        require(last > 0, "too many nodes")
        if at & 1 or at == last:
            prefix, whole = parent(node, prefix), parent(node, whole)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            whole = parent(whole, node)
        at, last = at >> 1, last >> 1
    require(last == 0, "too few nodes")
    return prefix, whole


def prove(file, given):
    require(file["schema"] == "svc.equivocation.v1", "another schema")
    origin = file["origin"]
    keys = [vkey(text) for text in given or file["log_keys"]]
    size, root = opened(file["smaller"], origin, keys)
    larger, larger_root = opened(file["larger"], origin, keys)
    nodes = [unpacked(node) for node in file["proof"]]
    require(0 < size <= larger, "the sizes are not in order")
    if size == larger:
        require(not nodes, "nodes for equal sizes")
        prefix = larger_root
    else:
        prefix, whole = roots(size, larger, nodes)
        require(whole == larger_root, "the nodes do not lead to the root of the larger tree")
    require(prefix != root, "the two checkpoints are of one history")
    believed = "" if given else " (believing the keys of the file)"
    return f"proven: {origin} signed two histories: {size} leaves have the roots {root.hex()} and {prefix.hex()}{believed}"


if len(sys.argv) < 2:
    sys.exit("usage: python verify-an-equivocation.py FILE [LOG_KEY..]")
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        print(prove(json.load(file), sys.argv[2:]))
except InvalidSignature:
    sys.exit("NOT proven: a signature does not hold")
except (Bad, KeyError, ValueError, TypeError, AttributeError, binascii.Error) as error:
    sys.exit(f"NOT proven: {error}")
