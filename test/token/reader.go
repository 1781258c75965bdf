// A verifier in Go that reads claims like most do: into a struct, with encoding/json, which ignores the case of names. Reads a JSON payload from
// each line and prints the values.
package main

import (
	"bufio"
	"encoding/json"
	"os"
)

type token struct {
	Issuer    json.RawMessage `json:"iss,omitempty"`
	Subject   json.RawMessage `json:"sub,omitempty"`
	Audience  json.RawMessage `json:"aud,omitempty"`
	Expires   json.RawMessage `json:"exp,omitempty"`
	NotBefore json.RawMessage `json:"nbf,omitempty"`
	IssuedAt  json.RawMessage `json:"iat,omitempty"`
	ID        json.RawMessage `json:"jti,omitempty"`
	Type      json.RawMessage `json:"typ,omitempty"`
	Key       json.RawMessage `json:"kid,omitempty"`
	Algorithm json.RawMessage `json:"alg,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var read token
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			panic(err)
		}
		if err := out.Encode(read); err != nil {
			panic(err)
		}
	}
}
