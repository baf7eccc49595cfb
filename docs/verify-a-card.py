"""python verify-a-card.py FILE [LOG_KEY [WITNESS_KEY]]: proves a card bundle offline (docs/card-bundle.md).

Needs the packages `cryptography` and `rfc8785`. Without keys it believes those in the file: that proves only that the file
agrees with itself. LOG_KEY and WITNESS_KEY are verifier keys as `touchstone mirror` prints them. Exits 0 if proven, else 1.
"""

import base64
import hashlib
import json
import sys
from datetime import datetime

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NOTE, COSIGNATURE = 0x01, 0x04


class Bad(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Bad(what)


def signed(key, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
        return True
    except (InvalidSignature, ValueError):
        return False


def b64url(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


sha256 = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
key_id = lambda name, kind, key: sha256(name.encode(), b"\n", bytes([kind]), key)[:4]
moment = lambda text: datetime.fromisoformat(text.replace("Z", "+00:00"))


def vkey(text, kind):
    """Name and key of a signed-note verifier key (c2sp.org/signed-note)."""
    name, ident, material = text.split("+", 2)
    raw = base64.b64decode(material, validate=True)
    require(len(raw) == 33 and raw[0] == kind, f"{text} is no verifier key of type {kind}")
    require(key_id(name, kind, raw[1:]).hex() == ident, f"{text} has another key id")
    return name, raw[1:]


def lines_of(note):
    """Text of a signed note, and its signature lines as (name, key id, signature)."""
    split = note.rindex("\n\n")
    lines = []
    for line in note[split + 2 : -1].split("\n"):
        dash, name, blob = line.split(" ")
        require(dash == "\u2014", "a signature line without a dash")
        raw = base64.b64decode(blob, validate=True)
        lines.append((name, raw[:4], raw[4:]))
    return note[: split + 1], lines


def opened(note, log, witness):
    """Origin, size, root and time of a checkpoint whose signatures hold (c2sp.org/tlog-checkpoint, tlog-cosignature)."""
    text, lines = lines_of(note)
    origin, size, root = text.split("\n")[:3]
    name, key = log(origin)
    require(origin == name, f"the checkpoint is of {origin}, not of {name}")
    found = [sig for who, ident, sig in lines if who == name and ident == key_id(name, NOTE, key)]
    require(found and all(signed(key, sig, text.encode()) for sig in found), f"no signature of {name}")
    name, key = witness(origin)
    found = [sig for who, ident, sig in lines if who == name and ident == key_id(name, COSIGNATURE, key)]
    require(found and len(found[0]) == 72, f"no cosignature of {name}")
    at = int.from_bytes(found[0][:8], "big")
    require(signed(key, found[0][8:], f"cosignature/v1\ntime {at}\n{text}".encode()), f"no cosignature of {name}")
    return origin, int(size), base64.b64decode(root, validate=True), at


def included(index, size, leaf, proof, root):
    """RFC 9162 section 2.1.3.2."""
    if index >= size:
        return False
    at, last, node = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if at & 1 or at == last:
            node = sha256(b"\x01", sibling, node)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            node = sha256(b"\x01", node, sibling)
        at, last = at >> 1, last >> 1
    return last == 0 and node == root


def card_signed(card, keys, at):
    """Is there a cards key that was valid then and signed this card (RFC 8785 without the member signature)?"""
    message = rfc8785.dumps({name: value for name, value in card.items() if name != "signature"})
    for key in keys:
        thumb = sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{key["x"]}"}}'.encode())
        named = card.get("signing_key_id", key["kid"]) == key["kid"]
        fits = named and key["purpose"] == "cards" and thumb == b64url(key["kid"])
        valid = moment(key["valid_from"]) <= at and ("retired_at" not in key or at < moment(key["retired_at"]))
        if fits and valid and signed(b64url(key["x"]), b64url(card["signature"]), message):
            return True
    return False


def prove(bundle, log_key=None, witness_key=None):
    keys = bundle["keys"]["keys"]

    def shown(purpose, suffix, kind):
        """The key of the file that signed the note."""
        _, lines = lines_of(bundle["checkpoint"])
        own = {(name, ident) for name, ident, _ in lines}

        def choose(origin):
            name = origin + suffix
            fit = [b64url(key["x"]) for key in keys if key["purpose"] == purpose]
            fit = [key for key in fit if (name, key_id(name, kind, key)) in own]
            require(fit, f"no {purpose} key of the file signed the checkpoint")
            return name, fit[0]

        return choose

    log = (lambda _: vkey(log_key, NOTE)) if log_key else shown("log", "", NOTE)
    witness = (lambda _: vkey(witness_key, COSIGNATURE)) if witness_key else shown("witness", "/witness", COSIGNATURE)
    origin, size, root, at = opened(bundle["checkpoint"], log, witness)
    proof = [base64.b64decode(node, validate=True) for node in bundle["proof"]]
    hashed = sha256(b"\x00", bundle["leaf"].encode())
    require(included(bundle["index"], size, hashed, proof, root), "the leaf is not in the tree")
    leaf = json.loads(bundle["leaf"])
    card = leaf["card"]
    of = card["capability_id"]
    require(leaf["kind"] == "grade" and of == bundle["capability_id"], "the leaf is no grade of this endpoint")
    require(card_signed(card, keys, moment(card.get("computed_at", leaf["at"]))), "the card is not signed")
    return f"proven: {of} {card['band']}, leaf {bundle['index']} of {size} of {origin}, cosigned at {at}"


if len(sys.argv) < 2:
    sys.exit("usage: python verify-a-card.py FILE [LOG_KEY [WITNESS_KEY]]")
try:
    with open(sys.argv[1], encoding="utf-8") as file:
        print(prove(json.load(file), *sys.argv[2:4]))
except (Bad, KeyError, ValueError, TypeError) as error:
    sys.exit(f"NOT proven: {error}")
