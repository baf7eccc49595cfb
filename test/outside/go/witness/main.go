// Reads a checkpoint under a witness policy with torchwood: witness POLICY CHECKPOINT. Prints origin and size, or ends with 1.
package main

import (
	"fmt"
	"os"

	"filippo.io/torchwood"
)

func read(n int) []byte {
	bytes, err := os.ReadFile(os.Args[n])
	end(err)
	return bytes
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	policy, err := torchwood.ParsePolicy(read(1))
	end(err)
	checkpoint, _, err := torchwood.VerifyCheckpoint(read(2), policy)
	end(err)
	fmt.Println(checkpoint.Origin, checkpoint.N)
}
