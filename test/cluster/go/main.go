// Reads a public store with other people's code: the checkpoint with golang.org/x/mod/sumdb/note, tiles and proofs with
// golang.org/x/mod/sumdb/tlog, entry bundles by the C2SP tlog-tiles text. Prints what it verified, or fails.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const height = 8

type store struct{ root string }

func (s store) Height() int                      { return height }
func (s store) SaveTiles([]tlog.Tile, [][]byte)  {}
func (s store) read(path string) ([]byte, error) { return os.ReadFile(filepath.Join(s.root, path)) }
func (s store) path(t tlog.Tile) string          { return strings.Replace(t.Path(), "tile/8/", "tile/", 1) }
func (s store) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(tiles))
	for i, tile := range tiles {
		data, err := s.read(s.path(tile))
		if err != nil {
			return nil, err
		}
		all[i] = data
	}
	return all, nil
}

// bundle gives the entries of bundle n: 16-bit big-endian lengths before bytes, gzip around them.
func (s store) bundle(n int64, width int) ([][]byte, error) {
	tile := tlog.Tile{H: height, L: 0, N: n, W: width}
	packed, err := s.read(strings.Replace(s.path(tile), "tile/0/", "tile/entries/", 1))
	if err != nil {
		return nil, err
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(unzip)
	if err != nil {
		return nil, err
	}
	var entries [][]byte
	for len(data) > 0 {
		size := int(binary.BigEndian.Uint16(data))
		entries, data = append(entries, data[2:2+size]), data[2+size:]
	}
	if len(entries) != width {
		return nil, fmt.Errorf("bundle %d has %d entries, not %d", n, len(entries), width)
	}
	return entries, nil
}

func run(root, vkey string) error {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return err
	}
	s := store{root}
	checkpoint, err := s.read("checkpoint")
	if err != nil {
		return err
	}
	signed, err := note.Open(checkpoint, note.VerifierList(verifier))
	if err != nil {
		return err
	}
	lines := strings.Split(signed.Text, "\n")
	if lines[0] != verifier.Name() {
		return fmt.Errorf("origin %q under the key of %q", lines[0], verifier.Name())
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(lines[2])
	if err != nil {
		return err
	}
	tree := tlog.Tree{N: size}
	copy(tree.Hash[:], raw)
	hashes := tlog.TileHashReader(tree, s)
	for n := int64(0); n*256 < size; n++ {
		width := int(min(256, size-n*256))
		entries, err := s.bundle(n, width)
		if err != nil {
			return err
		}
		for i, entry := range entries {
			at := n*256 + int64(i)
			proof, err := tlog.ProveRecord(size, at, hashes)
			if err != nil {
				return err
			}
			if err := tlog.CheckRecord(proof, size, tree.Hash, at, tlog.RecordHash(entry)); err != nil {
				return fmt.Errorf("leaf %d: %w", at, err)
			}
		}
	}
	for _, older := range []int64{1, size / 3, size/2 + 1, size} {
		if older < 1 {
			continue
		}
		old, err := tlog.TreeHash(older, hashes)
		if err != nil {
			return err
		}
		proof, err := tlog.ProveTree(size, older, hashes)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(proof, size, tree.Hash, older, old); err != nil {
			return fmt.Errorf("tree of %d in %d: %w", older, size, err)
		}
	}
	fmt.Printf("verified %d leaves of %s\n", size, lines[0])
	return nil
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
