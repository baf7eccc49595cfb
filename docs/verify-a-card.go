// go run verify-a-card.go FILE [LOG_KEY [WITNESS_KEY]]: proves a card bundle offline (docs/card-bundle.md). Without keys it
// believes those in the file: that proves only that the file agrees with itself. LOG_KEY and WITNESS_KEY are verifier keys as
// `touchstone mirror` prints them. Exits 0 if proven, else 1.
package main

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

type bundle struct {
	CapabilityID     string `json:"capability_id"`
	Index            uint64
	Leaf, Checkpoint string
	Proof            [][]byte
	Keys             map[string][]struct {
		Kid, X, Purpose string
		ValidFrom       time.Time  `json:"valid_from"`
		RetiredAt       *time.Time `json:"retired_at"`
	}
}

func require(holds bool, what string, args ...any) {
	if !holds {
		fmt.Fprintf(os.Stderr, "NOT proven: "+what+"\n", args...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	require(err == nil, "%v", err)
	return value
}

func b64url(text string) []byte   { return must(base64.RawURLEncoding.DecodeString(text)) }
func hash(parts ...[]byte) []byte { s := sha256.Sum256(bytes.Join(parts, nil)); return s[:] }
func keyID(name string, kind byte, key []byte) string {
	return hex.EncodeToString(hash([]byte(name+"\n"), []byte{kind}, key)[:4])
}

// the signature of this key on a note (c2sp.org/signed-note), or nil
func signature(signed, name string, kind byte, key []byte) []byte {
	_, lines, _ := strings.Cut(signed, "\n\n")
	for _, line := range strings.Split(strings.TrimSuffix(lines, "\n"), "\n") {
		part := strings.Split(line, " ")
		require(len(part) == 3 && part[0] == "\u2014", "no signature line: %q", line)
		raw := must(base64.StdEncoding.Strict().DecodeString(part[2]))
		if part[1] == name && len(raw) > 4 && hex.EncodeToString(raw[:4]) == keyID(name, kind, key) {
			return raw[4:]
		}
	}
	return nil
}

// the key that was named on the command line, else the key of the file that signed the note; and its signature
func signedBy(b bundle, arg int, purpose, name string, kind byte) (key, by []byte) {
	if len(os.Args) > arg {
		part := strings.SplitN(os.Args[arg], "+", 3)
		require(len(part) == 3 && (part[0] == name || kind == 4), "no verifier key of %s: %s", name, os.Args[arg])
		raw := must(base64.StdEncoding.DecodeString(part[2]))
		isKey := len(raw) == 33 && raw[0] == kind && keyID(part[0], kind, raw[1:]) == part[1]
		require(isKey, "no verifier key of type %d: %s", kind, os.Args[arg])
		key, by = raw[1:], signature(b.Checkpoint, part[0], kind, raw[1:])
	}
	for _, one := range b.Keys["keys"] {
		if len(os.Args) <= arg && one.Purpose == purpose && len(b64url(one.X)) == 32 && by == nil {
			key, by = b64url(one.X), signature(b.Checkpoint, name, kind, b64url(one.X))
		}
	}
	require(by != nil, "no %s key signed the checkpoint", purpose)
	return key, by
}

// RFC 9162 section 2.1.3.2
func included(index, size uint64, node []byte, proof [][]byte, root []byte) bool {
	at, last := index, size-1
	for _, sibling := range proof {
		if last == 0 {
			return false
		}
		if at&1 == 1 || at == last {
			for node = hash([]byte{1}, sibling, node); at&1 == 0 && at != 0; at, last = at>>1, last>>1 {
			}
		} else {
			node = hash([]byte{1}, node, sibling)
		}
		at, last = at>>1, last>>1
	}
	return index < size && last == 0 && bytes.Equal(node, root)
}

// RFC 8785 text of a part of canonical text: its numbers stay as they are written
func canonical(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	must(0, encoder.Encode(value))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func main() {
	var b bundle
	require(len(os.Args) > 1, "name a file")
	must(0, json.Unmarshal(must(os.ReadFile(os.Args[1])), &b))
	text, _, isNote := strings.Cut(b.Checkpoint, "\n\n")
	line := strings.Split(text, "\n")
	require(isNote && len(line) > 2, "the checkpoint is no signed note")
	key, by := signedBy(b, 2, "log", line[0], 1)
	require(ed25519.Verify(key, []byte(text+"\n"), by), "the signature of the log does not hold")
	key, by = signedBy(b, 3, "witness", line[0]+"/witness", 4)
	at := binary.BigEndian.Uint64(append(by, make([]byte, 8)...))
	message := fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", at, text)
	require(len(by) == 72 && ed25519.Verify(key, message, by[8:]), "the cosignature does not hold")
	size, root := must(strconv.ParseUint(line[1], 10, 64)), must(base64.StdEncoding.DecodeString(line[2]))
	require(included(b.Index, size, hash([]byte{0}, []byte(b.Leaf)), b.Proof, root), "the leaf is not in the tree")
	var leaf struct {
		Kind, At string
		Card     map[string]any
	}
	decoder := json.NewDecoder(strings.NewReader(b.Leaf))
	decoder.UseNumber()
	must(0, decoder.Decode(&leaf))
	require(leaf.Kind == "grade" && leaf.Card["capability_id"] == b.CapabilityID, "the leaf is no grade of this endpoint")
	moment, _ := leaf.Card["computed_at"].(string)
	own, _ := leaf.Card["signature"].(string)
	computed := must(time.Parse(time.RFC3339, cmp.Or(moment, leaf.At)))
	delete(leaf.Card, "signature")
	for _, one := range b.Keys["keys"] {
		kid, named := leaf.Card["signing_key_id"]
		thumb := hash([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + one.X + `"}`))
		valid := !computed.Before(one.ValidFrom) && (one.RetiredAt == nil || computed.Before(*one.RetiredAt))
		if one.Purpose == "cards" && valid && (!named || kid == one.Kid) && bytes.Equal(thumb, b64url(one.Kid)) &&
			len(b64url(one.X)) == 32 && ed25519.Verify(b64url(one.X), canonical(leaf.Card), b64url(own)) {
			fmt.Println("proven:", b.CapabilityID, leaf.Card["band"], "leaf", b.Index, "of", size, "of", line[0], "cosigned at", at)
			return
		}
	}
	require(false, "the card is not signed")
}
