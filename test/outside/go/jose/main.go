// Reads a JWK set (argv[1]) with go-jose and verifies a compact JWS (argv[2]) by the key that it names; prints what was
// loaded and what was signed.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/go-jose/go-jose/v4"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(file, token string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(text, &set); err != nil {
		return err
	}
	signed, err := jose.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return err
	}
	named := set.Key(signed.Signatures[0].Header.KeyID)
	if len(named) != 1 || !named[0].Valid() {
		return fmt.Errorf("no valid key %q", signed.Signatures[0].Header.KeyID)
	}
	payload, err := signed.Verify(named[0].Key)
	if err != nil {
		return err
	}
	loaded := []string{}
	for _, key := range set.Keys {
		loaded = append(loaded, key.KeyID)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"loaded": loaded, "payload": json.RawMessage(payload)})
}
