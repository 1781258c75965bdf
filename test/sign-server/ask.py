"""Asks for a token on a kept connection for each line of its input, and prints it in a line."""

import http.client
import json
import socket
import sys


class SignSocket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])


connection = SignSocket("localhost")
body = json.dumps({"claims": {"sub": "python", "aud": "relying-party", "nonce": "nonce"}, "lifetimeSeconds": 300})
for _ in sys.stdin:
    connection.request("POST", "/sign", body)
    print(connection.getresponse().read().decode(), flush=True)
