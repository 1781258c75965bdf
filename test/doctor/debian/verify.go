// Verifies tokens with go-jose or go-oidc, as their documentation shows. One JSON object per line in, one out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	oidc "github.com/coreos/go-oidc"
	jose "gopkg.in/square/go-jose.v2"
	"gopkg.in/square/go-jose.v2/jwt"
)

const audience = "relying-party"

type question struct {
	Issuer, JwksUri, Iss, Token string
	At                          int64
}

type answer struct {
	Verified bool   `json:"verified"`
	Error    string `json:"error,omitempty"`
}

func goJose(asked question) error {
	response, err := http.Get(asked.JwksUri)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var keys jose.JSONWebKeySet
	if err := json.Unmarshal(body, &keys); err != nil {
		return err
	}
	token, err := jwt.ParseSigned(asked.Token)
	if err != nil {
		return err
	}
	var claims jwt.Claims
	if err := token.Claims(&keys, &claims); err != nil {
		return err
	}
	return claims.Validate(jwt.Expected{Issuer: asked.Iss, Audience: jwt.Audience{audience}, Time: time.Now()})
}

var kept *oidc.Provider

// Whether what was fetched is kept from one token to the next.
var keeps = len(os.Args) > 2 && os.Args[2] == "kept"

// Sets the clock, if it can be set.
var setClock = func(milliseconds int64) {}

func goOidcKept(asked question) error {
	if kept == nil {
		provider, err := oidc.NewProvider(context.Background(), asked.Issuer)
		if err != nil {
			return err
		}
		kept = provider
	}
	config := &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{"ES256", "RS256"}}
	_, err := kept.Verifier(config).Verify(context.Background(), asked.Token)
	return err
}

func goOidc(asked question) error {
	if keeps {
		return goOidcKept(asked)
	}
	context, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	provider, err := oidc.NewProvider(context, asked.Issuer)
	if err != nil {
		return err
	}
	config := &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{"ES256", "RS256"}}
	_, err = provider.Verifier(config).Verify(context, asked.Token)
	return err
}

func main() {
	verify := map[string]func(question) error{"go-jose": goJose, "go-oidc": goOidc}[os.Args[1]]
	if verify == nil {
		panic(errors.New("there is no such library"))
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		setClock(asked.At)
		if err := verify(asked); err != nil {
			output.Encode(answer{Error: err.Error()})
		} else {
			output.Encode(answer{Verified: true})
		}
	}
}
