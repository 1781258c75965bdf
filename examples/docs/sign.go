package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

var client = http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
	IdleConnTimeout: time.Minute, // jwksd closes connections that are idle for 75 s
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", "/run/jwksd/sign.sock")
	},
}}

func main() {
	body := strings.NewReader(`{"claims": {"sub": "alice", "aud": "my-api"}, "lifetimeSeconds": 300}`)
	request, err := http.NewRequest("POST", "http://localhost/sign", body)
	if err != nil {
		panic(err)
	}
	request.Header["Idempotency-Key"] = nil // not sent, but lets net/http repeat the request on a new connection
	response, err := client.Do(request)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	token, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		panic(string(token))
	}
	fmt.Println(string(token))
}
